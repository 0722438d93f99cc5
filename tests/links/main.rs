//! Conformance: what every link has to do, tested by the same tests on each of them.
//!
//! | question | file |
//! | --- | --- |
//! | which links are there, and what does each lack? | `table.rs` |
//! | where does a test's device stand? | `place.rs` |
//! | what is written, and is it what is read? | `work.rs` |
//! | data: sizes, alignments, splitting, FUA and Flush, every mode on queues of either kind | `data.rs` |
//! | batches, futures, groups, foreign loops, reactors | `driving.rs` |
//! | modes that change, queues and futures that are let go, while requests are in flight | `moving.rs` |
//! | memory that the application owns | `memory.rs` |
//! | Write Zeroes and Deallocate | `zeroes.rs` |
//! | Compare, Verify and Write Uncorrectable | `checks.rs` |
//! | what is refused, what fails; growth and shrinkage | `limits.rs` |
//! | counters that add up | `counting.rs` |
//! | what the kernel decides | `kernel.rs` |
//! | files and block devices that go wrong | `faults.rs` (`faults/`) |
//! | what others count of the same I/O, in a guest | `witnesses.rs` |
//!
//! `REAP_TEST_DEVICE=kernel:/dev/nvme0n1` puts that device in the place of the table;
//! `tests/links.sh` does so in a guest. **Whatever it names is overwritten.**

mod checks;
mod counting;
mod data;
mod driving;
mod faults;
#[path = "../shared/forked.rs"]
mod forked;
#[path = "../shared/happened.rs"]
mod happened;
mod kernel;
mod limits;
mod memory;
mod moving;
mod place;
mod table;
mod witnesses;
mod work;
mod zeroes;

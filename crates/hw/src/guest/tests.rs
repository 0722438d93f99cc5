use std::fs::File;
use std::hint::spin_loop;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{BusError, GuestError, GuestMemory, GuestRange, Rights};

const BOTH: Rights = Rights { read: true, write: true };
const READ: Rights = Rights { read: true, write: false };
const WRITE: Rights = Rights { read: false, write: true };

/// A memory file, optionally sealed against shrinking as QEMU does.
fn memory(bytes: u64, sealed: bool) -> File {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .expect("a memory file");
    ftruncate(&file, bytes).expect("its size");
    if sealed {
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .expect("seals");
    }
    file.into()
}

fn fd(file: &File) -> OwnedFd {
    file.try_clone().expect("a descriptor").into()
}

fn range(addr: u64, bytes: u64, rights: Rights) -> GuestRange {
    GuestRange { addr, bytes, rights }
}

fn read(guest: &GuestMemory, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
    guest.read(addr, into, |_, _| false)
}

fn write(guest: &GuestMemory, addr: u64, from: &[u8]) -> Result<(), BusError> {
    guest.write(addr, from, |_, _| false)
}

fn check(guest: &GuestMemory, addr: u64, len: u64, rights: Rights) -> Result<(), BusError> {
    guest.check(addr, len, rights, || false)
}

/// Mapped files and files accessed by system calls behave the same.
#[test]
fn bytes_go_both_ways_across_ranges() {
    for (sealed, trusted) in [(true, false), (false, false), (false, true)] {
        let file = memory(0x8000, sealed);
        let mut guest = GuestMemory::default();
        if trusted {
            guest.trust();
        }
        // Two adjacent ranges whose memory is not adjacent.
        guest.map(range(0x10000, 0x1000, BOTH), Some((fd(&file), 0x4000))).expect("mapped");
        guest.map(range(0x11000, 0x2000, BOTH), Some((fd(&file), 0x1000))).expect("mapped");
        assert_eq!(
            guest.ranges.values().all(|mapped| mapped.memory.as_ref().is_some_and(
                |(file, _)| matches!(file.access, super::file::Access::Mapped { .. })
            )),
            sealed || trusted
        );
        let data: Vec<u8> = (0..0x1800).map(|n| (n % 251) as u8).collect();
        write(&guest, 0x10800, &data).expect("written");
        let mut back = vec![0; data.len()];
        read(&guest, 0x10800, &mut back).expect("read");
        assert_eq!(back, data);
        let (mut first, mut second) = ([0; 0x800], [0; 0x1000]);
        file.read_exact_at(&mut first, 0x4800).expect("read");
        file.read_exact_at(&mut second, 0x1000).expect("read");
        assert_eq!([&first[..], &second].concat(), data);
        // Past the last byte, and in no range.
        assert_eq!(
            write(&guest, 0x12801, &[0; 0x800]),
            Err(BusError { addr: 0x12801, len: 0x800 })
        );
        assert_eq!(read(&guest, 0xffff, &mut [0]), Err(BusError { addr: 0xffff, len: 1 }));
        assert_eq!(check(&guest, u64::MAX, 2, READ), Err(BusError { addr: u64::MAX, len: 2 }));
    }
}

#[test]
fn words_stay_in_one_range() {
    for sealed in [true, false] {
        let file = memory(0x2000, sealed);
        let mut guest = GuestMemory::default();
        guest.map(range(0, 0x1000, BOTH), Some((fd(&file), 0x1000))).expect("mapped");
        guest.map(range(0x1000, 0x1000, READ), Some((fd(&file), 0))).expect("mapped");
        guest.store(0x10, [0x0123_4567_89ab_cdef_u64, 0x8421_0000_0000_ffff]).expect("stored");
        assert_eq!(guest.load::<u64, 2>(0x10), Ok([0x0123_4567_89ab_cdef, 0x8421_0000_0000_ffff]));
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0x1018).expect("read");
        assert_eq!(u64::from_ne_bytes(bytes), 0x8421_0000_0000_ffff);
        assert!(
            guest.load::<u64, 8>(0xfc8).is_err()
                && guest.load::<u64, 2>(0x14).is_err()
                && guest.load::<u64, 8>(0xfc0).is_ok()
        );
        assert!(
            guest.store(0xff8, [0_u64; 2]).is_err()
                && guest.store(0x1000, [0_u64; 2]).is_err()
                && guest.store(0x2000, [0_u64; 2]).is_err()
        );
    }
}

#[test]
fn rights_are_enforced() {
    let file = memory(0x3000, true);
    let mut guest = GuestMemory::default();
    guest.map(range(0, 0x1000, READ), Some((fd(&file), 0))).expect("mapped");
    guest.map(range(0x1000, 0x1000, WRITE), Some((fd(&file), 0x1000))).expect("mapped");
    guest.map(range(0x2000, 0x1000, BOTH), None).expect("mapped");
    assert!(read(&guest, 0, &mut [0; 16]).is_ok() && write(&guest, 0, &[0; 16]).is_err());
    assert!(read(&guest, 0x1000, &mut [0; 16]).is_err() && write(&guest, 0x1000, &[0; 16]).is_ok());
    assert!(
        read(&guest, 0x2000, &mut [0; 16]).is_err() && write(&guest, 0x2000, &[0; 16]).is_err()
    );
    assert!(check(&guest, 0, 0x1000, BOTH).is_err() && check(&guest, 0, 0x1000, READ).is_ok());
}

/// A read-only descriptor is mapped read-only, and never written to.
#[test]
fn read_only_files_stay_unwritten() {
    let mut named = tempfile::NamedTempFile::new().expect("a file");
    named.write_all(&[7; 0x1000]).expect("written");
    let mut guest = GuestMemory::default();
    let file = File::open(named.path()).expect("opened");
    guest.map(range(0, 0x1000, BOTH), Some((file.into(), 0))).expect("mapped");
    let mut byte = [0];
    assert!(read(&guest, 0xfff, &mut byte).is_ok() && byte == [7]);
    assert!(write(&guest, 0, &[1]).is_err() && guest.store(0, [0; 2]).is_err());
    let sealed = memory(0x1000, false);
    fcntl_add_seals(&sealed, SealFlags::SHRINK | SealFlags::WRITE).expect("seals");
    guest.map(range(0x1000, 0x1000, BOTH), Some((sealed.into(), 0))).expect("mapped");
    assert!(
        read(&guest, 0x1000, &mut byte).is_ok()
            && write(&guest, 0x1000, &[1]).is_err()
            && guest.store(0x1000, [0_u64; 2]).is_err()
    );
}

/// Malformed ranges and files of a malicious guest.
#[test]
fn bad_memory_is_refused() {
    let file = memory(0x2000, true);
    let mut guest = GuestMemory::default();
    for (addr, bytes, offset) in
        [(1, 0x1000, 0), (0, 0x1001, 0), (0, 0x1000, 8), (0, 0, 0), (!0xfff, 0x2000, 0)]
    {
        let mapped = guest.map(range(addr, bytes, BOTH), Some((fd(&file), offset)));
        assert!(matches!(mapped, Err(GuestError::Refused(_))), "{addr:#x} {bytes:#x} {offset:#x}");
    }
    for (bytes, offset) in [(0x3000, 0), (0x1000, 0x2000), (0x2000, 0x1000)] {
        let mapped = guest.map(range(0, bytes, BOTH), Some((fd(&file), offset)));
        assert!(matches!(mapped, Err(GuestError::Refused(_))), "{bytes:#x} {offset:#x}");
    }
    assert!(matches!(
        guest.map(range(0, 0x1000, BOTH), Some((fd(&file), !0xfff))),
        Err(GuestError::Refused(_))
    ));
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    assert!(matches!(
        guest.map(range(0, 0x1000, BOTH), Some((socket.into(), 0))),
        Err(GuestError::Refused(_))
    ));
    let null = File::open("/dev/zero").expect("opened");
    assert!(matches!(
        guest.map(range(0, 0x1000, BOTH), Some((null.into(), 0))),
        Err(GuestError::Refused(_))
    ));
    assert!(guest.ranges.is_empty() && guest.files.is_empty());
}

/// The owner of an unsealed file truncates it: an error, not SIGBUS.
#[test]
fn truncated_files_are_errors() {
    let file = memory(0x4000, false);
    let mut guest = GuestMemory::default();
    guest.map(range(0, 0x4000, BOTH), Some((fd(&file), 0))).expect("mapped");
    assert!(write(&guest, 0x3000, &[1; 16]).is_ok());
    ftruncate(&file, 0x1000).expect("shortened");
    assert!(read(&guest, 0x3000, &mut [0; 16]).is_err() && guest.load::<u64, 8>(0x3000).is_err());
    assert!(read(&guest, 0, &mut [0; 16]).is_ok());
}

/// The owner truncates the file while it is being mapped, then seals it: the size read before was
/// not protected. Accessing such a mapping would raise SIGBUS.
#[test]
fn truncation_before_sealing_is_detected() {
    let (ready, round) = (AtomicU32::new(0), AtomicU32::new(0));
    let (give, given) = mpsc::channel::<File>();
    thread::scope(|scope| {
        let (ready, round) = (&ready, &round);
        scope.spawn(move || {
            for (n, file) in (1..).zip(given) {
                ready.store(n, Ordering::Release);
                while round.load(Ordering::Acquire) < n {
                    spin_loop();
                }
                // A little later each time, so that every instant is hit on slow and fast machines.
                (0..n % 128).for_each(|_| spin_loop());
                ftruncate(&file, 0x1000).expect("shortened");
                fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            }
        });
        // All rounds take half a minute on a busy machine.
        let until = Instant::now() + Duration::from_secs(2);
        for n in (1..=20_000).take_while(|_| Instant::now() < until) {
            let (file, mut guest) = (memory(0x4000, false), GuestMemory::default());
            give.send(fd(&file).into()).expect("taken");
            while ready.load(Ordering::Acquire) < n {
                thread::yield_now();
            }
            round.store(n, Ordering::Release);
            if guest.map(range(0, 0x4000, BOTH), Some((file.into(), 0))).is_ok() {
                _ = read(&guest, 0x3000, &mut [0; 16]);
            }
        }
        drop(give);
    });
}

#[test]
fn ranges_share_a_files_mapping() {
    let file = memory(0x100_0000, true);
    let mut guest = GuestMemory::default();
    for page in 0..0x800 {
        guest.map(range(page << 13, 0x1000, BOTH), Some((fd(&file), page << 12))).expect("mapped");
    }
    assert_eq!((guest.ranges.len(), guest.files.len()), (0x800, 1));
    assert!(matches!(
        guest.map(range(0x2000, 0x1000, BOTH), None),
        Err(GuestError::Overlap { other: 0x2000, .. })
    ));
    assert!(matches!(
        guest.map(range(0x1000, 0x2000, BOTH), None),
        Err(GuestError::Overlap { other: 0x2000, .. })
    ));
    assert_eq!(guest.unmap(0, 0x10000).expect("unmapped"), 0x8000);
    assert_eq!(guest.unmap(0, 0x10000).expect("unmapped"), 0);
    assert!(
        matches!(guest.unmap(0x10000, 0x2800), Err(GuestError::Refused(why)) if why.contains("0x12000"))
    );
    assert!(
        matches!(guest.unmap(0x10800, 0x10000), Err(GuestError::Refused(why)) if why.contains("0x10000"))
    );
    assert_eq!(guest.ranges.len(), 0x7f8);
    guest.clear();
    assert!(guest.ranges.is_empty() && guest.files.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Map { page: u64, pages: u64, from: u64, write: bool },
    Unmap { page: u64, pages: u64 },
    Write { at: u64, len: u64, byte: u8 },
    Read { at: u64, len: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..16, 1u64..5, 0u64..12, any::<bool>())
            .prop_map(|(page, pages, from, write)| Step::Map { page, pages, from, write }),
        (0u64..16, 1u64..6).prop_map(|(page, pages)| Step::Unmap { page, pages }),
        (0u64..0x11000, 0u64..0x3000, any::<u8>()).prop_map(|(at, len, byte)| Step::Write {
            at,
            len,
            byte
        }),
        (0u64..0x11000, 0u64..0x3000).prop_map(|(at, len)| Step::Read { at, len }),
    ]
}

proptest! {
    /// Random maps, unmaps and copies match a table of pages, for mapped and unmapped files.
    #[test]
    fn copies_match_a_page_table(steps in proptest::collection::vec(step(), 1..40), sealed in any::<bool>()) {
        const FILE: u64 = 12;
        let file = memory(FILE << 12, sealed);
        let mut guest = GuestMemory::default();
        // By page: its range, its page in the file, and whether it is writable.
        let mut table: [Option<(u64, u64, bool)>; 32] = [None; 32];
        let mut contents = vec![0u8; (FILE << 12) as usize];
        for step in steps {
            match step {
                Step::Map { page, pages, from, write } => {
                    let slots = &mut table[page as usize..(page + pages) as usize];
                    let possible = from + pages <= FILE && slots.iter().all(Option::is_none);
                    let rights = Rights { read: true, write };
                    let done = guest.map(range(page << 12, pages << 12, rights), Some((fd(&file), from << 12)));
                    prop_assert_eq!(done.is_ok(), possible);
                    for (n, slot) in slots.iter_mut().enumerate().filter(|_| possible) {
                        *slot = Some((page, from + n as u64, write));
                    }
                }
                Step::Unmap { page, pages } => {
                    let inside = |n: u64| n >= page && n < page + pages;
                    let whole = |owner: u64| (0..32).all(|n| table[n as usize].is_none_or(|(of, ..)| of != owner || inside(n)));
                    let owners: Vec<u64> = (page..page + pages).filter_map(|n| Some(table[n as usize]?.0)).collect();
                    let possible = owners.iter().all(|owner| whole(*owner));
                    let done = guest.unmap(page << 12, pages << 12);
                    prop_assert_eq!(done.ok(), possible.then_some((owners.len() as u64) << 12));
                    if possible {
                        table[page as usize..(page + pages) as usize].fill(None);
                    }
                }
                Step::Write { at, len, byte } => {
                    let places: Option<Vec<u64>> = (at..at + len)
                        .map(|at| table[(at >> 12) as usize].filter(|(.., write)| *write).map(|(_, page, _)| page << 12 | at & 0xfff))
                        .collect();
                    let done = write(&guest, at, &vec![byte; len as usize]);
                    prop_assert_eq!(done.is_ok(), places.is_some());
                    if let Some(places) = places {
                        places.into_iter().for_each(|place| contents[place as usize] = byte);
                    } else {
                        // Bytes accessed before the first inaccessible page.
                        file.read_exact_at(&mut contents, 0).expect("read");
                    }
                }
                Step::Read { at, len } => {
                    let wanted: Option<Vec<u8>> = (at..at + len)
                        .map(|at| table[(at >> 12) as usize].map(|(_, page, _)| contents[(page << 12 | at & 0xfff) as usize]))
                        .collect();
                    let mut got = vec![0; len as usize];
                    let done = read(&guest, at, &mut got);
                    prop_assert_eq!(done.is_ok(), wanted.is_some());
                    if let Some(wanted) = wanted {
                        prop_assert_eq!(got, wanted);
                    }
                }
            }
        }
    }
}

/// Shadow doorbells in guest memory, of both kinds of files.
#[test]
fn doorbell_words_go_both_ways() {
    for sealed in [true, false] {
        let file = memory(0x3000, sealed);
        let mut guest = GuestMemory::default();
        guest.map(range(0x10000, 0x1000, BOTH), Some((fd(&file), 0x1000))).expect("mapped");
        guest.map(range(0x11000, 0x1000, READ), Some((fd(&file), 0x2000))).expect("mapped");
        guest.store(0x10ffc, [0x1234_5678_u32]).expect("stored");
        file.write_all_at(&7u32.to_ne_bytes(), 0x2000).expect("written");
        assert_eq!(
            (guest.load(0x10ffc), guest.load(0x11000)),
            (Ok([0x1234_5678_u32]), Ok([7_u32]))
        );
        let mut there = [0; 4];
        file.read_exact_at(&mut there, 0x1ffc).expect("read");
        assert_eq!(u32::from_ne_bytes(there), 0x1234_5678);
        for refused in [0x10ffe, 0x12000, u64::MAX - 3] {
            assert_eq!(guest.load::<u32, 1>(refused), Err(BusError { addr: refused, len: 4 }));
        }
        assert_eq!(guest.store(0x11000, [9_u32]), Err(BusError { addr: 0x11000, len: 4 }));
        assert_eq!(guest.load::<u32, 1>(0x11000), Ok([7]));
    }
}

/// A range without a file is accessed through the callback, segment by segment, subject to its
/// rights.
#[test]
fn ranges_without_file_use_callbacks() {
    let file = memory(0x1000, true);
    let mut guest = GuestMemory::default();
    guest.map(range(0, 0x1000, BOTH), None).expect("mapped");
    guest.map(range(0x1000, 0x1000, BOTH), Some((fd(&file), 0))).expect("mapped");
    guest.map(range(0x2000, 0x1000, READ), None).expect("mapped");
    let mut asked = Vec::new();
    let mut bytes = [0; 0x1004];
    let done = guest.read(0xffe, &mut bytes, |at, piece| {
        asked.push((at, piece.len()));
        piece.fill(7);
        true
    });
    assert_eq!((done, &bytes[..3], &bytes[0x1001..]), (Ok(()), &[7, 7, 0][..], &[0, 7, 7][..]));
    assert_eq!(asked, [(0xffe, 2), (0x2000, 2)]);
    let mut written = Vec::new();
    let mut write = |addr, from: &[u8]| {
        guest.write(addr, from, |at, piece| {
            written.push((at, piece.to_vec()));
            at < 0x800
        })
    };
    assert_eq!(
        (write(0x10, &[1, 2]), write(0x1ffe, &[3; 4])),
        (Ok(()), Err(BusError { addr: 0x1ffe, len: 4 }))
    );
    assert!(write(0x900, &[5]).is_err() && write(0x3000, &[6]).is_err());
    assert_eq!(written, [(0x10, vec![1, 2]), (0x900, vec![5])]);
    assert!(
        guest.check(0, 0x2000, BOTH, || true).is_ok()
            && guest.check(0, 0x2000, BOTH, || false).is_err()
    );
    assert!(
        guest.check(0x2000, 1, WRITE, || true).is_err()
            && guest.check(0x3000, 1, READ, || true).is_err()
    );
    // Words cannot be loaded from ranges without a file.
    assert!(
        guest.load::<u64, 8>(0).is_err()
            && guest.store(0, [0; 2]).is_err()
            && guest.load::<u32, 1>(0).is_err()
    );
}

/// Even sealed, huge pages may be missing.
#[test]
fn huge_pages_need_trust() {
    let kind = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | MemfdFlags::HUGETLB
        | MemfdFlags::HUGE_2MB;
    let Ok(file) = memfd_create("huge", kind).map(File::from) else {
        return println!("skipped: the kernel has no hugetlbfs");
    };
    ftruncate(&file, 2 << 20).expect("its size");
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("seals");
    let mut guest = GuestMemory::default();
    let refused = guest.map(range(0, 2 << 20, BOTH), Some((fd(&file), 0)));
    assert!(
        matches!(&refused, Err(GuestError::Refused(why)) if why.contains("huge pages")),
        "{refused:?}"
    );
    guest.trust();
    guest.map(range(0, 2 << 20, BOTH), Some((fd(&file), 0))).expect("its owner is trusted");
}

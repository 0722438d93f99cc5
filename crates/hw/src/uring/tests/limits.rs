use std::collections::HashSet;
use std::process::Command as Process;
use std::sync::Mutex;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use nvme::Sqe;

use super::*;
use crate::Pages;

#[test]
fn overflowing_rings_lose_nothing() {
    for options in kinds() {
        let mut whole = Whole::new(&Options { cq_entries: 8, ..options });
        assert_eq!((whole.ring.0.sq_entries, whole.ring.0.cq_entries), (8, 8));
        let (mut pushed, mut seen) = (0, Vec::new());
        while pushed < 100 {
            while whole.sq.room() > 0 && pushed < 100 {
                whole.push(Entry::nop().user_data(pushed));
                pushed += 1;
            }
            let submit = whole.sq.unsubmitted();
            match whole.ring.enter(Enter { submit, ..Enter::default() }) {
                // The SQPOLL thread is asynchronous.
                Ok(_) => std::thread::yield_now(),
                Err(RingError::Busy) => seen.extend(whole.take()),
                Err(other) => panic!("{options:?}: {other}"),
            }
        }
        while seen.len() < 100 {
            whole
                .ring
                .enter(Enter { submit: whole.sq.unsubmitted(), wait_for: 1, ..Enter::default() })
                .unwrap();
            assert_ne!(whole.ring.cq_state(), CqState::None);
            seen.extend(whole.take());
        }
        assert_eq!(
            seen.iter().map(|cqe| cqe.user_data).collect::<HashSet<_>>().len(),
            100,
            "{options:?}"
        );
        assert_eq!((whole.ring.cq_state(), whole.sq.unsubmitted()), (CqState::None, 0));
    }
}

#[test]
fn full_rings_refuse_entries() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        if options.big || matches!(options.poll, Poll::Sq { .. }) {
            continue;
        }
        let command = PassthroughCommand::new(FileSlot(0), &Sqe::default(), None);
        assert!(!whole.sq.push_command(command));
        for n in 0..8 {
            assert_eq!((whole.sq.room(), whole.sq.unsubmitted()), (8 - n, n));
            whole.push(Entry::nop());
        }
        assert!(!whole.sq.push(Entry::nop()) && !whole.sq.push_chain([Entry::nop(), Entry::nop()]));
        assert_eq!(whole.submit(8), 8);
        whole.push(Entry::nop().user_data(3));
        assert_eq!((whole.sq.room(), whole.take().len()), (7, 8));
        assert_eq!(whole.results(1), [(3, 0)]);
    }
}

#[test]
fn bad_entries_stop_no_others() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        for n in 0..3 {
            whole.push(
                if n == 1 { Entry::allocate(FileSlot(9), 0, 0, 1) } else { Entry::nop() }
                    .user_data(n),
            );
        }
        assert_eq!(whole.results(3), [(0, 0), (1, -libc::EBADF), (2, 0)], "{options:?}");
    }
}

#[test]
fn failed_chains_are_cancelled() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        assert!(whole.sq.push_chain([
            Entry::allocate(FileSlot(9), 0, 0, 1).user_data(0),
            Entry::nop().user_data(1)
        ]));
        whole.push(Entry::nop().user_data(2));
        assert_eq!(
            whole.results(3),
            [(0, -libc::EBADF), (1, -libc::ECANCELED), (2, 0)],
            "{options:?}"
        );
    }
}

#[test]
fn owned_rings_refuse_other_threads() {
    for options in kinds().into_iter().filter(|options| options.owner) {
        let mut whole = Whole::new(&options);
        let (_file, fd) = file(0);
        let ring = &whole.ring;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let entered = ring.enter(Enter { run_tasks: true, ..Enter::default() });
                assert!(matches!(entered, Err(RingError::WrongThread)), "{entered:?}");
                let registered = ring.register_file(FileSlot(0), &fd);
                assert!(matches!(registered, Err(RingError::WrongThread)), "{registered:?}");
            });
            other.join().unwrap();
        });
        assert_eq!(whole.result(Entry::nop()), 0);
    }
}

#[test]
fn shared_rings_take_several_threads() {
    const EACH: u64 = 2_000;
    for options in kinds().into_iter().filter(|options| !options.owner) {
        let Whole { ring, sq, cq, .. } = Whole::new(&Options { cq_entries: 16, ..options });
        let (sq, cq, seen) = (Mutex::new(sq), Mutex::new(cq), Mutex::new(HashSet::new()));
        let turn = |thread: u64, next: &mut u64| {
            let submit = {
                let mut sq = sq.lock().unwrap();
                while *next < EACH && sq.push(Entry::nop().user_data(thread * EACH + *next)) {
                    *next += 1;
                }
                sq.unsubmitted()
            };
            match ring.enter(Enter { submit, run_tasks: true, ..Enter::default() }) {
                Ok(_) | Err(RingError::Busy) => {}
                Err(other) => panic!("{options:?}: {other}"),
            }
            let mut cq = cq.lock().unwrap();
            let taken: Vec<_> = std::iter::from_fn(|| cq.pop()).collect();
            cq.release();
            drop(cq);
            let mut seen = seen.lock().unwrap();
            assert!(taken.iter().all(|cqe| seen.insert(cqe.user_data)), "completed twice");
            seen.len()
        };
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let turn = &turn;
                scope.spawn(move || {
                    let mut next = 0;
                    while turn(thread, &mut next) < 2 * EACH as usize {}
                });
            }
        });
    }
}

#[test]
fn forked_children_cannot_use_rings() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        whole.push(Entry::nop().user_data(1));
        // SAFETY: the child calls nothing that another thread's lock could hold up, and ends
        // without running anything.
        match unsafe { libc::fork() } {
            0 => {
                let refused = matches!(
                    whole.ring.enter(Enter { run_tasks: true, ..Enter::default() }),
                    Err(RingError::Forked)
                ) && !whole.sq.push(Entry::nop())
                    && whole.cq.pop().is_none()
                    && matches!(whole.ring.unregister_file(FileSlot(0)), Err(RingError::Forked));
                drop(whole);
                // A ring made in the child works.
                let own = Ring::new(&options).is_ok_and(|(ring, ..)| {
                    ring.enter(Enter { run_tasks: true, ..Enter::default() }).is_ok()
                });
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!refused) + 2 * i32::from(!own)) };
            }
            child => {
                assert!(child > 0);
                let mut status = 0;
                // SAFETY: `status` is a place for the answer.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(
                    (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
                    (true, 0),
                    "{options:?}"
                );
            }
        }
        // The ring of the parent is unaffected.
        assert_eq!(whole.results(1), [(1, 0)]);
    }
}

/// Set in the child process of this test, which lowers its own limits.
const LIMITED: &str = "REAP_TEST_MEMLOCK";

#[test]
fn unpinnable_memory_is_used_unregistered() {
    if features().is_none() {
        return;
    }
    if std::env::var_os(LIMITED).is_none() {
        let name = "uring::tests::limits::unpinnable_memory_is_used_unregistered";
        let child = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(LIMITED, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout).into_owned()
            + &String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(1 << 20), maximum }).unwrap();
    // Of this thread, which makes the rings.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let lent = filled(&pool, BLOCK, 9);
        let (_file, fd) = file(BLOCK as u64);
        let error = whole.ring.register_buffer(0, &lent).unwrap_err();
        assert!(
            matches!(error, RingError::Memlock { wanted: 0x40_0000, limit: 0x10_0000 }),
            "{error:?}"
        );
        assert!(error.to_string().contains("RLIMIT_MEMLOCK is 1048576 bytes"), "{error}");
        let kept = whole.keep(&fd);
        assert_eq!(whole.result(Entry::read(kept, 0, Span::of(&lent, 0..BLOCK))), BLOCK as i32);
        assert!(lent.take_back().iter().all(|b| *b == 0));
    }
}

#[test]
fn registered_regions_are_returned() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let (_file, fd) = file(BLOCK as u64);
        let kept = whole.keep(&fd);
        // Its last chunk is shorter.
        let region = pool.register(Pages::new((4 << 20) + 2 * BLOCK).unwrap()).unwrap();
        let lent = region.buffer((4 << 20) + BLOCK..(4 << 20) + 2 * BLOCK).unwrap().lend();
        let fixed = whole.ring.register_buffer(3, &lent).unwrap();
        assert_eq!((fixed.slot, fixed.chunk.index, Some(fixed.chunk)), (3, 1, lent.chunk_id()));
        assert_eq!(
            whole.result(Entry::read(kept, 0, Span::fixed(&lent, 0..BLOCK, fixed))),
            BLOCK as i32
        );
        let crossing = region.buffer((4 << 20) - BLOCK..(4 << 20) + BLOCK).unwrap().lend();
        assert!(matches!(whole.ring.register_buffer(0, &crossing), Err(RingError::Crosses)));
        drop((crossing.take_back(), lent.take_back()));
        drop(region.into_owner().unwrap());
        // A buffer of other memory is not in the registered chunk.
        let other = filled(&pool, BLOCK, 1);
        assert!(!Span::fixed(&other, 0..BLOCK, fixed).is_fixed());
        whole.ring.register_buffer(0, &other).unwrap();
        drop((other.take_back(), pool));
    }
}

#[test]
#[should_panic(expected = "bytes 512..4097 of a lent buffer of 4096 bytes")]
fn spans_stay_in_their_buffer() {
    let lent = filled(&DmaPool::new(4 << 20).unwrap(), BLOCK, 0);
    _ = Span::of(&lent, 512..4097);
}

#[test]
fn passthrough_needs_an_nvme_namespace() {
    for options in kinds().into_iter().filter(|options| options.big) {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let lent = filled(&pool, BLOCK, 9);
        let kept = whole.keep(&file(BLOCK as u64).1);
        let read = Sqe { opcode: 2, nsid: 1, ..Sqe::default() };
        assert!(whole.sq.push_command(
            PassthroughCommand::new(kept, &read, Some(Span::of(&lent, 0..BLOCK))).user_data(4)
        ));
        assert_eq!(whole.results(1), [(4, -libc::EOPNOTSUPP)]);
        drop(lent.take_back());
    }
}

#[test]
fn polled_rings_read_or_refuse() {
    let Some(features) = features() else { return };
    let polls = [(features.io_poll, Poll::Io), (features.hybrid_io_poll, Poll::HybridIo)];
    for poll in polls.into_iter().filter(|(has, _)| *has).map(|(_, poll)| poll) {
        for owner in [false, features.owner] {
            let mut whole = Whole::new(&Options { owner, poll, files: 16, ..Options::default() });
            let pool = DmaPool::new(4 << 20).unwrap();
            let lent = filled(&pool, BLOCK, 9);
            let kept = whole.keep(&file(BLOCK as u64).1);
            let result = whole.result(Entry::read(kept, 0, Span::of(&lent, 0..BLOCK)));
            assert!([BLOCK as i32, -libc::EOPNOTSUPP].contains(&result), "{poll:?}: {result}");
            drop(lent.take_back());
        }
    }
}

#[test]
fn setup_errors_name_the_options() {
    if features().is_none() {
        return;
    }
    let error =
        Ring::new(&Options { entries: 1 << 20, owner: true, ..Options::default() }).unwrap_err();
    let (start, end) = (
        "the kernel refuses an io_uring of Options { entries: 1048576, ",
        "owner: true, poll: No, big: false, ",
    );
    let words = error.to_string();
    assert!(
        words.starts_with(start)
            && words.contains(end)
            && words.ends_with("}: Invalid argument (os error 22)"),
        "{words}"
    );
    let error = Ring::new(&Options { buffers: 1 << 20, ..Options::default() }).unwrap_err();
    assert!(error.to_string().contains("a table of 1048576 buffers"), "{error}");
}

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::Waker;

use completion::Mode;
use hw::DmaBuf;

use super::*;
use crate::shared::control::Control;
use crate::shared::events::EventSource;
use crate::shared::queue_shared::QueueShared;
use crate::shared::reports::Kick;
use crate::{Device, OpenOptions};

#[test]
fn software_queues_have_bounds() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &[7; 4096]).unwrap();
    let uri = format!("kernel:{}?readonly=yes", file.path().display());
    let open = |queues: usize| Device::open_with(&uri, &OpenOptions::new().software_queues(queues));
    match open(65_535) {
        Ok(_) => {}
        Err(why) => return eprintln!("skipped: {why}"),
    }
    for queues in [0, 65_536] {
        let error = open(queues).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{queues} software queues: there must be 1 to 65535")),
            "{error}"
        );
    }
}

/// A queue without a thread that the kernel never answers.
struct Unanswered(Arc<QueueShared>, Arc<Mutex<Vec<&'static str>>>);

impl Orphan for Unanswered {
    fn poll_orphan(&mut self, _: Nanos) -> (Vec<Waker>, Vec<DmaBuf>) {
        self.1.lock().unwrap().push("poll");
        (Vec::new(), Vec::new())
    }

    fn shared(&self) -> &Arc<QueueShared> {
        &self.0
    }

    fn cancel_all(&mut self) {
        self.1.lock().unwrap().push("cancel");
    }

    fn lose_all(&mut self) -> (Vec<Waker>, Vec<DmaBuf>) {
        self.1.lock().unwrap().push("lose");
        self.0.set_open(0);
        (vec![Waker::from(Arc::new(Woken))], Vec::new())
    }
}

static WOKEN: AtomicU32 = AtomicU32::new(0);

/// A waker that records that it was called.
struct Woken;

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        assert_eq!(std::thread::current().name(), Some("reap-wake"));
        WOKEN.fetch_add(1, SeqCst);
    }
}

/// A queue without a thread does not delay the wake-up for late requests of another, and is lost
/// some time after the close.
#[test]
fn orphans_delay_no_late_request() {
    let control =
        Control::new(Arc::new(Kick::new().unwrap()), EventSource::new(Arc::default(), None));
    let queues = Arc::new(FileQueues::new(2));
    let mut task = FileTask::new(control.shared(), queues.clone(), Nanos::from_secs(30));
    let (sleeper, left) =
        (queues.add(|| Mode::INTERRUPT).unwrap(), queues.add(|| Mode::INTERRUPT).unwrap());
    let (signal, said, now) = (
        sleeper.wake.try_clone_signal().unwrap(),
        Arc::<Mutex<Vec<_>>>::default(),
        Nanos::from_secs(1000),
    );
    sleeper.set_open(1);
    left.set_open(1);
    left.set_orphaned(true);
    control.add_orphan(Box::new(Unanswered(left, said.clone())));
    sleeper.wake.arm();
    sleeper.set_late_at(now + Nanos(1));
    assert!(matches!(task.step(now), TaskStatus::Until(until) if until == now + SWEEP_EVERY));
    assert_eq!(signal.drain(), 0);
    assert!(matches!(task.step(now + Nanos(1)), TaskStatus::Until(_)));
    assert_eq!(signal.drain(), 1);
    sleeper.set_open(0);
    drop(control);
    assert!(matches!(task.step(now), TaskStatus::Until(_)));
    assert!(matches!(task.step(now + CLOSING - Nanos(1)), TaskStatus::Until(_)));
    assert!(matches!(task.step(now + CLOSING), TaskStatus::Ended));
    assert_eq!(*said.lock().unwrap(), ["poll", "poll", "cancel", "poll", "poll", "poll", "lose"]);
    assert_eq!(queues.all().len(), 1);
    let limit = hw::now() + Nanos::from_secs(60);
    while WOKEN.load(SeqCst) == 0 {
        assert!(hw::now() < limit, "no waker has run");
        std::thread::yield_now();
    }
}

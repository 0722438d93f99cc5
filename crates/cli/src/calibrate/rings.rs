//! What io_uring itself costs: entries that do nothing, and polls of an eventfd, whose completions are task work.

use hw::EventFd;
use hw::uring::{Cq, Cqe, Enter, Entry, FileSlot, Options, Ring, Sq};

use super::list::Found;
use super::{Sampler, time_each};

/// Entries of a large batch: fewer than the 20 completions that a call runs at most (IO_LOCAL_TW_DEFAULT_MAX, 6.13).
const LARGE: u32 = 16;
/// Batches of a sample.
const BATCHES: u32 = 50;

/// The slot of the eventfd that is polled.
const POLLED: FileSlot = FileSlot(0);

/// A ring of one thread's own, and the eventfd that it polls.
struct Rig {
    ring: Ring,
    sq: Sq,
    cq: Cq,
    event: EventFd,
    cqes: [Cqe; LARGE as usize],
}

impl Rig {
    /// `None`: the kernel gives no such ring.
    fn new() -> Option<Rig> {
        let (ring, sq, cq) = Ring::new(&Options { entries: LARGE, owner: true, files: 1, ..Options::default() }).ok()?;
        let event = EventFd::new().ok()?;
        ring.register_file(POLLED, &event).ok()?;
        Some(Rig { ring, sq, cq, event, cqes: [Cqe::default(); LARGE as usize] })
    }

    fn push(&mut self, n: u32, entry: impl Fn(&Rig) -> Entry) -> Option<()> {
        (0..n).try_for_each(|_| {
            let entry = entry(self);
            self.sq.push(entry).ok()
        })
    }

    /// Takes what is there; nanoseconds for each.
    fn take(&mut self, n: u32) -> Option<f64> {
        let began = hw::now();
        let taken = self.cq.take(&mut self.cqes);
        let ns = (hw::now() - began).0 as f64 / f64::from(n);
        (taken == n as usize).then_some(ns)
    }

    /// The mean of many batches of `n` entries that do nothing: the call, and the taking of each completion. `quiet` entries
    /// have none.
    fn nothing(&mut self, n: u32, quiet: bool, wait: bool) -> Option<[f64; 2]> {
        self.mean(|rig| {
            rig.push(n, |_| if quiet { Entry::nop().quiet() } else { Entry::nop() })?;
            let wait_for = if wait { n } else { 0 };
            let call = rig.timed(Enter { submit: n, wait_for, ..Enter::default() })?;
            let take = if quiet { 0.0 } else { rig.take(n)? };
            Some([call, take])
        })
    }

    /// A call of its own that waits for a completion which is there.
    fn waiting(&mut self) -> Option<f64> {
        let [wait] = self.mean(|rig| {
            rig.push(1, |_| Entry::nop())?;
            rig.timed(Enter { submit: 1, ..Enter::default() })?;
            let wait = rig.timed(Enter { wait_for: 1, ..Enter::default() })?;
            rig.take(1)?;
            Some([wait])
        })?;
        Some(wait)
    }

    /// `n` polls of an eventfd that is signalled: the signal, which queues their completions, and the call that runs them.
    fn task_work(&mut self, n: u32) -> Option<[f64; 2]> {
        self.mean(|rig| {
            rig.push(n, |_| Entry::poll(POLLED, false))?;
            rig.timed(Enter { submit: n, ..Enter::default() })?;
            let signal = time_each(1, || rig.event.signal());
            let run = rig.timed(Enter { run_tasks: true, ..Enter::default() })?;
            rig.take(n)?;
            rig.event.drain();
            Some([signal, run])
        })
    }

    fn timed(&self, enter: Enter) -> Option<f64> {
        let began = hw::now();
        self.ring.enter(enter).ok()?;
        Some((hw::now() - began).0 as f64)
    }

    fn mean<const N: usize>(&mut self, mut batch: impl FnMut(&mut Rig) -> Option<[f64; N]>) -> Option<[f64; N]> {
        let mut sums = [0.0; N];
        for _ in 0..BATCHES {
            sums.iter_mut().zip(batch(self)?).for_each(|(sum, ns)| *sum += ns);
        }
        Some(sums.map(|sum| sum / f64::from(BATCHES)))
    }
}

/// Nothing is found where the kernel refuses a ring.
pub fn measure(sampler: &mut Sampler<'_>, found: &mut Found) {
    let Some(mut rig) = Rig::new() else { return };
    let clock = found.clock.map_or(0.0, |clock| clock.value);
    found.ring = sampler.repeat(|| {
        let each = |one: f64, many: f64| (many - one) / f64::from(LARGE - 1);
        let ([one, _], [many, take]) = (rig.nothing(1, false, false)?, rig.nothing(LARGE, false, false)?);
        let ([quiet, _], [fused, _]) = (rig.nothing(LARGE, true, false)?, rig.nothing(1, false, true)?);
        let ([signal, run], [signals, runs]) = (rig.task_work(1)?, rig.task_work(LARGE)?);
        let submit = each(one, many);
        let event = (many - quiet) / f64::from(LARGE);
        Some([
            one - submit - clock,
            submit - event,
            event,
            fused - one,
            rig.waiting()? - clock,
            each(signal, signals),
            run - each(run, runs) - clock,
            take,
        ])
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nops_and_polls_complete() {
        // Without io_uring there is nothing to measure, and the list says so.
        let Some(mut rig) = Rig::new() else { return };
        for n in [1, LARGE] {
            assert!(rig.nothing(n, false, false).is_some() && rig.nothing(n, false, true).is_some());
            assert!(rig.task_work(n).is_some());
        }
        // Those without a completion leave none behind.
        assert!(rig.nothing(LARGE, true, false).is_some());
        assert_eq!(rig.cq.take(&mut rig.cqes), 0);
        assert!(rig.waiting().is_some());
    }
}

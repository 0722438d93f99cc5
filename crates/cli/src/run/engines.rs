//! What the options of fio's engine io_uring come to where the device is the kernel's as well.

use completion::Mode;
use reap::Device;
use workload::Job;

use crate::output::say;

/// The mode that a run is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// As the command line says, else as the jobs do.
    pub mode: Mode,
    /// What it has in its place on a device that lacks it. `None`: such a device is an error.
    otherwise: Option<Mode>,
}

impl Wish {
    const fn plain(mode: Mode) -> Wish {
        Wish { mode, otherwise: None }
    }

    /// The mode that devices are opened in.
    pub fn at_open(self) -> Mode {
        self.otherwise.unwrap_or(self.mode)
    }

    /// The mode of a run on `devices`, which are open. What is not done as a job says is told.
    pub fn on(self, devices: &[Device]) -> Mode {
        let Some(otherwise) = self.otherwise else { return self.mode };
        match devices.iter().find_map(|device| device.lacks(self.mode)) {
            Some(why) => {
                say(format_args!("note: {why}: the jobs run in {otherwise}"));
                otherwise
            }
            None => self.mode,
        }
    }
}

/// The mode of a run: as the command line says, else as the jobs do. What is not done as a job says is told.
pub fn wish(given: Option<Mode>, jobs: &[Job], kernel: bool) -> Wish {
    let (wish, notes) = decide(given, jobs, kernel);
    notes.into_iter().for_each(|note| say(format_args!("note: {note}")));
    wish
}

/// Files and buffers are always registered: `registerfiles` and `fixedbufs` ask for nothing more.
fn decide(given: Option<Mode>, jobs: &[Job], kernel: bool) -> (Wish, Vec<String>) {
    let usual = Wish::plain(given.unwrap_or(Mode::ADAPTIVE));
    if !kernel {
        return (usual, Vec::new());
    }
    type Says = fn(&Job) -> bool;
    let options: [(&str, Says, Mode, Mode); 2] = [
        ("sqthread_poll", |job| job.engine.sqthread_poll, Mode::KERNEL_SQPOLL, Mode::ADAPTIVE),
        ("hipri", |job| job.engine.hipri, Mode::KERNEL_IOPOLL, Mode::POLL),
    ];
    let (mut chosen, mut notes) = (None, Vec::new());
    for (option, says, mode, otherwise) in options {
        let Some(job) = jobs.iter().find(|job| says(job)) else { continue };
        let not_done = match (given, chosen) {
            (Some(given), _) if given == mode || given == otherwise => continue,
            (Some(given), _) => format!("--completion {given} decides"),
            (None, Some(Wish { mode: other, .. })) => format!("{other} is, and no ring is made for both"),
            (None, None) if jobs.iter().all(says) => {
                chosen = Some(Wish { mode, otherwise: Some(otherwise) });
                continue;
            }
            (None, None) => format!("not all jobs say it, and the run has one mode; --completion {mode} is that of all"),
        };
        notes.push(format!("job '{}': {option} is not done: {not_done}", job.name));
    }
    (chosen.unwrap_or(usual), notes)
}

#[cfg(test)]
mod tests {
    use workload::fio::{self, Input};

    use super::*;

    fn decided(given: Option<Mode>, text: &str, kernel: bool) -> (Wish, String) {
        let jobs = fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs;
        let (wish, notes) = decide(given, &jobs, kernel);
        (wish, notes.join("\n"))
    }

    const ALL: &str = "[global]\nioengine=io_uring\nhipri\nregisterfiles\nfixedbufs\n[a]\n[b]\n";
    const ONE: &str = "[global]\nioengine=io_uring\n[a]\nhipri\n[b]\n";
    const THREAD: &str = "[s]\nioengine=io_uring\nsqthread_poll\n";

    #[test]
    fn what_all_jobs_say_of_io_uring_is_the_mode_where_the_kernel_drives_the_device() {
        let polled = Wish { mode: Mode::KERNEL_IOPOLL, otherwise: Some(Mode::POLL) };
        assert_eq!(decided(None, ALL, true), (polled, String::new()));
        assert_eq!(polled.at_open(), Mode::POLL);
        let submitted = Wish { mode: Mode::KERNEL_SQPOLL, otherwise: Some(Mode::ADAPTIVE) };
        assert_eq!(decided(None, THREAD, true), (submitted, String::new()));
        for given in [Mode::POLL, Mode::KERNEL_IOPOLL] {
            assert_eq!(decided(Some(given), ALL, true), (Wish::plain(given), String::new()));
        }
        assert_eq!(decided(None, ALL, false), (Wish::plain(Mode::ADAPTIVE), String::new()));
        assert_eq!(decided(None, "[a]\n", true), (Wish::plain(Mode::ADAPTIVE), String::new()));
    }

    #[test]
    fn what_is_not_done_is_told() {
        let (wish, told) = decided(Some(Mode::SUSPEND), ALL, true);
        assert!(wish == Wish::plain(Mode::SUSPEND) && told.contains("job 'a': hipri is not done: --completion suspend decides"), "{told}");
        let (wish, told) = decided(None, ONE, true);
        assert!(wish == Wish::plain(Mode::ADAPTIVE) && told.contains("not all jobs say it"), "{told}");
        let (wish, told) = decided(None, &format!("{THREAD}hipri\n"), true);
        assert!(wish.mode == Mode::KERNEL_SQPOLL && told.contains("job 's': hipri is not done: kernel-sqpoll is"), "{told}");
    }
}

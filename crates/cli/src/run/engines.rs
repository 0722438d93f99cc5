//! What the options of fio's engine io_uring come to where the device is the kernel's as well.

use completion::Mode;
use reap::Device;
use workload::Job;

use crate::output::say;

/// The mode that a run is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeChoice {
    /// As the command line says, else as the jobs do.
    pub mode: Mode,
    /// The mode that devices are opened in, and what a run has in its place on a device that lacks it.
    pub otherwise: Mode,
}

impl ModeChoice {
    /// The mode of a run on `devices`, which are open. What is not done as a job says is noted.
    pub fn on(self, devices: &[Device]) -> Mode {
        // A device that lacks the mode of the command line is an error when it is opened.
        let lacking = || devices.iter().find_map(|device| device.lacks(self.mode));
        let Some(why) = (self.mode != self.otherwise).then(lacking).flatten() else { return self.mode };
        say(format_args!("note: {why}: the jobs run in {}", self.otherwise));
        self.otherwise
    }
}

/// The mode of a run: as the command line says, else as the jobs do. What is not done as a job says is noted.
pub fn choose(given: Option<Mode>, jobs: &[Job], kernel: bool) -> ModeChoice {
    let (choice, notes) = decide(given, jobs, kernel);
    notes.into_iter().for_each(|note| say(format_args!("note: {note}")));
    choice
}

/// Files and buffers are always registered: `registerfiles` and `fixedbufs` ask for nothing more.
fn decide(given: Option<Mode>, jobs: &[Job], kernel: bool) -> (ModeChoice, Vec<String>) {
    let usual = given.unwrap_or(Mode::ADAPTIVE);
    let usual = ModeChoice { mode: usual, otherwise: usual };
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
            (None, Some(ModeChoice { mode: other, .. })) => format!("{other} is, and no ring is made for both"),
            (None, None) if jobs.iter().all(says) => {
                chosen = Some(ModeChoice { mode, otherwise });
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

    fn decided(given: Option<Mode>, text: &str, kernel: bool) -> (ModeChoice, String) {
        let jobs = fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs;
        let (choice, notes) = decide(given, &jobs, kernel);
        (choice, notes.join("\n"))
    }

    const fn plain(mode: Mode) -> ModeChoice {
        ModeChoice { mode, otherwise: mode }
    }

    const ALL: &str = "[global]\nioengine=io_uring\nhipri\nregisterfiles\nfixedbufs\n[a]\n[b]\n";
    const ONE: &str = "[global]\nioengine=io_uring\n[a]\nhipri\n[b]\n";
    const THREAD: &str = "[s]\nioengine=io_uring\nsqthread_poll\n";

    #[test]
    fn io_uring_options_choose_the_mode() {
        let polled = ModeChoice { mode: Mode::KERNEL_IOPOLL, otherwise: Mode::POLL };
        assert_eq!(decided(None, ALL, true), (polled, String::new()));
        let submitted = ModeChoice { mode: Mode::KERNEL_SQPOLL, otherwise: Mode::ADAPTIVE };
        assert_eq!(decided(None, THREAD, true), (submitted, String::new()));
        for given in [Mode::POLL, Mode::KERNEL_IOPOLL] {
            assert_eq!(decided(Some(given), ALL, true), (plain(given), String::new()));
        }
        assert_eq!(decided(None, ALL, false), (plain(Mode::ADAPTIVE), String::new()));
        assert_eq!(decided(None, "[a]\n", true), (plain(Mode::ADAPTIVE), String::new()));
    }

    #[test]
    fn what_is_not_done_is_told() {
        let (choice, told) = decided(Some(Mode::SUSPEND), ALL, true);
        assert!(choice == plain(Mode::SUSPEND) && told.contains("job 'a': hipri is not done: --completion suspend decides"), "{told}");
        let (choice, told) = decided(None, ONE, true);
        assert!(choice == plain(Mode::ADAPTIVE) && told.contains("not all jobs say it"), "{told}");
        let (choice, told) = decided(None, &format!("{THREAD}hipri\n"), true);
        assert!(choice.mode == Mode::KERNEL_SQPOLL && told.contains("job 's': hipri is not done: kernel-sqpoll is"), "{told}");
    }
}

//! What the options of fio's engine io_uring come to where the device is the kernel's as well.

use completion::Mode;
use workload::Job;

use crate::output::say;

/// The mode of a run: as the command line says, else as the jobs do. What is not done as a job says is told.
pub fn mode(given: Option<Mode>, jobs: &[Job], kernel: bool) -> Mode {
    let (mode, notes) = decide(given, jobs, kernel);
    notes.into_iter().for_each(|note| say(format_args!("note: {note}")));
    mode
}

/// Files and buffers are always registered: `registerfiles` and `fixedbufs` ask for nothing more.
fn decide(given: Option<Mode>, jobs: &[Job], kernel: bool) -> (Mode, Vec<String>) {
    let mut notes = Vec::new();
    let mode = given.unwrap_or(Mode::ADAPTIVE);
    if !kernel {
        return (mode, notes);
    }
    if let Some(job) = jobs.iter().find(|job| job.engine.sqthread_poll) {
        notes.push(format!("job '{}': sqthread_poll is not done: job threads submit themselves", job.name));
    }
    let Some(polled) = jobs.iter().find(|job| job.engine.hipri) else { return (mode, notes) };
    let all = jobs.iter().all(|job| job.engine.hipri);
    match given {
        None if all => return (Mode::POLL, notes),
        None => {
            notes.push(format!("job '{}': hipri is not done, because not all jobs say it; --completion poll polls for all", polled.name))
        }
        Some(Mode::POLL) => {}
        Some(mode) => notes.push(format!("job '{}': hipri is not done: --completion {mode} decides", polled.name)),
    }
    (mode, notes)
}

#[cfg(test)]
mod tests {
    use workload::fio::{self, Input};

    use super::*;

    fn decided(given: Option<Mode>, text: &str, kernel: bool) -> (Mode, String) {
        let jobs = fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs;
        let (mode, notes) = decide(given, &jobs, kernel);
        (mode, notes.join("\n"))
    }

    const ALL: &str = "[global]\nioengine=io_uring\nhipri\nregisterfiles\nfixedbufs\n[a]\n[b]\n";
    const ONE: &str = "[global]\nioengine=io_uring\n[a]\nhipri\n[b]\n";

    #[test]
    fn hipri_polls_where_the_kernel_drives_the_device() {
        assert_eq!(decided(None, ALL, true), (Mode::POLL, String::new()));
        assert_eq!(decided(Some(Mode::POLL), ALL, true), (Mode::POLL, String::new()));
        assert_eq!(decided(None, ALL, false), (Mode::ADAPTIVE, String::new()));
        assert_eq!(decided(None, "[a]\n", true), (Mode::ADAPTIVE, String::new()));
    }

    #[test]
    fn what_is_not_done_is_told() {
        let (mode, told) = decided(Some(Mode::SUSPEND), ALL, true);
        assert!(mode == Mode::SUSPEND && told.contains("job 'a': hipri is not done: --completion suspend decides"), "{told}");
        let (mode, told) = decided(None, ONE, true);
        assert!(mode == Mode::ADAPTIVE && told.contains("not all jobs say it"), "{told}");
        let (_, told) = decided(None, "[s]\nioengine=io_uring\nsqthread_poll\n", true);
        assert!(told.contains("job 's': sqthread_poll is not done"), "{told}");
    }
}

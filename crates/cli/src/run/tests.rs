use workload::fio::{self, Input};

use super::*;

fn decided(given: Option<Mode>, text: &str, kernel: bool) -> ([Mode; 2], String) {
    let jobs = fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing)
        .unwrap()
        .jobs;
    let (mode, otherwise, notes) = choose_mode(given, &jobs, kernel);
    ([mode, otherwise], notes.join("\n"))
}

const ALL: &str = "[global]\nioengine=io_uring\nhipri\nregisterfiles\nfixedbufs\n[a]\n[b]\n";
const ONE: &str = "[global]\nioengine=io_uring\n[a]\nhipri\n[b]\n";
const THREAD: &str = "[s]\nioengine=io_uring\nsqthread_poll\n";

#[test]
fn io_uring_options_choose_the_mode() {
    let polled = [Mode::KERNEL_IOPOLL, Mode::POLL];
    assert_eq!(decided(None, ALL, true), (polled, String::new()));
    let submitted = [Mode::KERNEL_SQPOLL, Mode::ADAPTIVE];
    assert_eq!(decided(None, THREAD, true), (submitted, String::new()));
    for given in [Mode::POLL, Mode::KERNEL_IOPOLL] {
        assert_eq!(decided(Some(given), ALL, true), ([given; 2], String::new()));
    }
    assert_eq!(decided(None, ALL, false), ([Mode::ADAPTIVE; 2], String::new()));
    assert_eq!(decided(None, "[a]\n", true), ([Mode::ADAPTIVE; 2], String::new()));
}

#[test]
fn ignored_options_are_reported() {
    let (choice, told) = decided(Some(Mode::SUSPEND), ALL, true);
    assert!(
        choice == [Mode::SUSPEND; 2]
            && told.contains("job 'a': hipri has no effect: --completion suspend decides"),
        "{told}"
    );
    let (choice, told) = decided(None, ONE, true);
    assert!(choice == [Mode::ADAPTIVE; 2] && told.contains("not all jobs have it"), "{told}");
    let (choice, told) = decided(None, &format!("{THREAD}hipri\n"), true);
    assert!(
        choice[0] == Mode::KERNEL_SQPOLL
            && told.contains("job 's': hipri has no effect: kernel-sqpoll is used"),
        "{told}"
    );
}

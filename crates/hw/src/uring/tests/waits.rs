use super::*;

#[test]
fn an_event_wakes_a_wait_again_and_again_until_the_poll_is_cancelled() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let event = EventFd::new().unwrap();
        let kept = whole.ring.keep(event.as_fd().try_clone_to_owned().unwrap());
        whole.push(Entry::poll(kept, true).user_data(5));
        whole.submit(0);
        assert_eq!(whole.take(), []);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let ringing = scope.spawn(|| event.signal());
                assert_eq!(whole.submit(1).ended, Ended::Done, "{options}");
                ringing.join().unwrap();
                let cqes = whole.take();
                assert_eq!((cqes.len(), cqes[0].user_data, cqes[0].result & i32::from(libc::POLLIN)), (1, 5, libc::POLLIN.into()));
                assert!(cqes[0].more());
            }
        });
        whole.push(Entry::cancel(5).user_data(6));
        assert_eq!(whole.results(2), [(5, -libc::ECANCELED), (6, 0)]);
        assert_eq!(whole.result(Entry::cancel(5)), -libc::ENOENT);
    }
}

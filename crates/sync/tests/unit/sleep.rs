#[cfg(not(loom))]
mod unit {
    use std::cell::RefCell;

    use crate::{SleepSteps, WakeFlag, sleep};

    /// Records each step. The checks that are named return true.
    struct Noted {
        flag: WakeFlag,
        successor: Option<u8>,
        finds: &'static str,
        steps: RefCell<Vec<String>>,
    }

    impl Noted {
        fn new(successor: Option<u8>, finds: &'static str) -> Noted {
            Noted { flag: WakeFlag::new(), successor, finds, steps: RefCell::default() }
        }

        fn note(&self, step: &str) -> bool {
            let flag = if self.flag.is_armed() { "armed" } else { "masked" };
            self.steps.borrow_mut().push(format!("{step} {flag}"));
            self.finds.split(' ').any(|finds| finds == step)
        }
    }

    impl SleepSteps for Noted {
        type Thread = u8;

        fn flag(&self) -> &WakeFlag {
            &self.flag
        }

        fn register(&mut self) -> Option<u8> {
            self.note("register");
            self.successor
        }

        fn unmask(&mut self) {
            self.note("unmask");
        }

        fn notify(&self, thread: u8) {
            self.note(&format!("tell {thread}"));
        }

        fn was_posted(&mut self) -> bool {
            self.note("posted")
        }

        fn has_entry(&mut self) -> bool {
            self.note("entry")
        }

        fn has_completions(&mut self) -> bool {
            self.note("mail")
        }

        fn is_wanted(&mut self) -> bool {
            self.note("wanted")
        }

        fn mask(&mut self) {
            self.note("mask");
        }
    }

    #[test]
    fn arming_precedes_registering() {
        for (successor, woken) in [(None, None), (Some(3), Some("tell 3 armed"))] {
            let mut noted = Noted::new(successor, "");
            sleep::arm(&mut noted);
            let steps: Vec<_> =
                ["register armed", "unmask armed"].into_iter().chain(woken).collect();
            assert_eq!(noted.steps.take(), steps);
        }
    }

    #[test]
    fn any_source_prevents_sleep() {
        for finds in
            ["posted", "entry", "mail", "wanted", "", "posted entry", "entry mail", "posted mail"]
        {
            let mut noted = Noted::new(None, finds);
            assert_eq!(sleep::check(&mut noted), !finds.is_empty(), "{finds}");
            let steps = noted.steps.take();
            assert!(
                steps.starts_with(
                    &["posted masked", "entry masked", "mail masked"].map(String::from)
                ),
                "{steps:?}"
            );
            assert_eq!(
                steps.contains(&"wanted masked".into()),
                ["wanted", ""].contains(&finds),
                "what is wanted is done then"
            );
        }
    }

    #[test]
    fn woken_thread_masks_first() {
        let mut noted = Noted::new(None, "");
        sleep::arm(&mut noted);
        noted.steps.take();
        sleep::wake(&mut noted);
        assert_eq!(noted.steps.take(), ["mask masked"]);
    }
}

/// A thread that has a queue to itself, in modes that mask, that do not, and that stay armed.
#[cfg(loom)]
mod models {
    use completion::Mode;

    use crate::model::{Omit, Queue, fails, holds};

    #[test]
    fn no_mask_use_misses_entries() {
        for mode in [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::ADAPTIVE] {
            holds(3, move || Queue::run_single_threaded(mode, &[0, 0], false, Omit::Nothing));
        }
    }

    #[test]
    fn masking_without_poll_is_caught() {
        fails(2, || Queue::run_single_threaded(Mode::IRQ_POLL, &[0], false, Omit::LookBeforeSleep));
    }
}

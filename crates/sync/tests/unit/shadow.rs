use super::*;
use crate::atomic::AtomicU32;

/// Both words in memory.
struct Words {
    value: AtomicU32,
    event: AtomicU32,
}

impl Words {
    fn new() -> Words {
        Words { value: AtomicU32::new(0), event: AtomicU32::new(0) }
    }
}

impl ShadowDoorbell for Words {
    type Fault = ();

    fn value(&self) -> Result<u32, ()> {
        Ok(self.value.load(Ordering::Acquire))
    }

    fn set_value(&self, value: u32) -> Result<(), ()> {
        self.value.store(value, Ordering::Release);
        Ok(())
    }

    fn event(&self) -> Result<u32, ()> {
        Ok(self.event.load(Ordering::Relaxed))
    }

    fn set_event(&self, value: u32) -> Result<(), ()> {
        self.event.store(value, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(not(loom))]
mod unit {
    use super::*;

    #[test]
    fn eventidx_passes_inside_the_move() {
        for (event, old, new, rings) in [
            (0, 0, 1, true),
            (0, 1, 2, false),
            (4, 1, 4, false),
            (4, 1, 5, true),
            (4, 4, 5, true),
            // Around the end of the ring, from its last slot and from one before.
            (1023, 1023, 0, true),
            (0, 1023, 3, true),
            (1022, 1023, 3, false),
            (0xffff, 0xffff, 0, true),
            // It did not move.
            (4, 4, 4, false),
        ] {
            assert_eq!(passes(event, old, new), rings, "{old} to {new}, EventIdx {event}");
        }
    }

    #[test]
    fn one_doorbell_write_per_arming() {
        let bell = Words::new();
        assert_eq!(arm(&bell, 0), Ok(0));
        assert_eq!((announce(&bell, 0, 2), announce(&bell, 2, 3)), (Ok(true), Ok(false)));
        assert_eq!(arm(&bell, 2), Ok(3), "it must not sleep");
        assert_eq!(arm(&bell, 3), Ok(3));
        assert_eq!(announce(&bell, 3, 0), Ok(true));
    }
}

/// A host that announces entries one by one, and a controller that sleeps between them.
#[cfg(loom)]
mod models {
    use super::*;
    use crate::model::{EventFds, fails, holds};
    use crate::{Arc, thread};

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        ControllersFence,
        Check,
        HostsFence,
    }

    fn entries_are_found(entries: u32, omit: Omit) -> bool {
        let bell = Arc::new(Words::new());
        // The register: a write to it wakes the controller.
        let register = EventFds::new(1, 2);

        let host = {
            let (bell, register) = (bell.clone(), register.clone());
            thread::spawn(move || {
                for entry in 0..entries {
                    let rings = match omit {
                        Omit::HostsFence => bell
                            .set_value(entry + 1)
                            .and_then(|()| Ok(passes(bell.event()?, entry, entry + 1))),
                        _ => announce(&*bell, entry, entry + 1),
                    };
                    if rings.unwrap() {
                        register.signal(0);
                    }
                }
                register.end();
            })
        };

        let mut woken = true;
        let mut seen = bell.value().unwrap();
        while woken && seen < entries {
            let now = match omit {
                Omit::ControllersFence => bell.set_event(seen).and_then(|()| bell.value()),
                _ => arm(&*bell, seen),
            };
            if omit == Omit::Check || now == Ok(seen) {
                woken = register.block(&[0]).is_ok();
            }
            seen = bell.value().unwrap();
        }
        register.end();
        host.join().unwrap();
        woken
    }

    #[test]
    fn each_entry_is_found() {
        holds(3, || entries_are_found(2, Omit::Nothing));
    }

    #[test]
    fn missing_controller_fence_is_caught() {
        fails(3, || entries_are_found(2, Omit::ControllersFence));
    }

    #[test]
    fn missing_check_after_arming_is_caught() {
        fails(3, || entries_are_found(2, Omit::Check));
    }

    #[test]
    fn missing_host_fence_is_caught() {
        fails(3, || entries_are_found(2, Omit::HostsFence));
    }
}

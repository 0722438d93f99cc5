use super::*;

fn inventory() -> Inventory {
    let mut identify = crate::testing::controller::Script::default().identify;
    identify.aerl = 7;
    let limits = crate::Limits::new(crate::testing::controller::Script::default().cap, &identify).unwrap();
    Inventory { limits: Some(limits), ..Inventory::default() }
}

/// A controller that has something to say whenever it is asked, for a second: it is heard at a pace, and never for the last time.
#[test]
fn a_controller_that_chatters_is_heard_at_a_pace() {
    let (mut events, mut now, mut heard) = (Events::new(&inventory()), Nanos::from_secs(5), Vec::new());
    while now < Nanos::from_secs(6) {
        while let Some((_, purpose)) = events.next_command(now) {
            match purpose {
                Purpose::AsyncEvent => {
                    assert!(events.happened(Status::SUCCESS, 2).is_some());
                    heard.push(now);
                }
                _ => events.was_read(),
            }
            assert!(heard.len() <= 1000, "{} events at {now}", heard.len());
        }
        let until = events.until(now);
        assert!(now < until && until <= now + PACE, "{until} at {now}");
        now = until;
    }
    let most = heard.iter().map(|&from| heard.iter().filter(|&&at| at >= from && at < from + PACE).count()).max();
    assert_eq!((most, heard.len()), (Some(BURST), 10 * BURST));
}

/// One that has a burst of them to say is heard at once.
#[test]
fn a_few_events_at_once_are_not_held_back() {
    let (mut events, now) = (Events::new(&inventory()), Nanos::ZERO);
    let asked = |events: &mut Events| std::iter::from_fn(|| events.next_command(now)).filter(|(_, p)| *p == Purpose::AsyncEvent).count();
    assert_eq!(asked(&mut events), WANTED as usize);
    for _ in 0..WANTED {
        events.happened(Status::SUCCESS, 2);
    }
    assert_eq!((asked(&mut events), events.until(now)), (WANTED as usize, Nanos::MAX));
}

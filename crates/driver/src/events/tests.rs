use super::*;

fn inventory() -> Inventory {
    let mut identify = crate::testing::controller::Script::default().identify;
    identify.aerl = 7;
    let limits =
        crate::Limits::new(crate::testing::controller::Script::default().cap, &identify).unwrap();
    Inventory { limits: Some(limits), ..Inventory::default() }
}

/// A controller that completes each event request at once, for a second: the rate is limited, and
/// requests continue.
#[test]
fn event_floods_are_rate_limited() {
    let (mut events, mut now, mut heard) =
        (EventRequests::new(&inventory()), Nanos::from_secs(5), Vec::new());
    while now < Nanos::from_secs(6) {
        while let Some((_, purpose)) = events.next_command(now) {
            match purpose {
                Purpose::AsyncEvent => {
                    assert!(events.event_completed(Status::SUCCESS, 2).is_some());
                    heard.push(now);
                }
                _ => events.read_completed(),
            }
            assert!(heard.len() <= 1000, "{} events at {now}", heard.len());
        }
        let until = events.until(now);
        assert!(now < until && until <= now + RATE_PERIOD, "{until} at {now}");
        now = until;
    }
    let most = heard
        .iter()
        .map(|&from| heard.iter().filter(|&&at| at >= from && at < from + RATE_PERIOD).count())
        .max();
    assert_eq!((most, heard.len()), (Some(RATE_BURST), 10 * RATE_BURST));
}

/// A burst of events is handled at once.
#[test]
fn few_events_are_not_delayed() {
    let (mut events, now) = (EventRequests::new(&inventory()), Nanos::ZERO);
    let asked = |events: &mut EventRequests| {
        std::iter::from_fn(|| events.next_command(now))
            .filter(|(_, p)| *p == Purpose::AsyncEvent)
            .count()
    };
    assert_eq!(asked(&mut events), MAX_OUTSTANDING as usize);
    for _ in 0..MAX_OUTSTANDING {
        events.event_completed(Status::SUCCESS, 2);
    }
    assert_eq!((asked(&mut events), events.until(now)), (MAX_OUTSTANDING as usize, Nanos::MAX));
}

/// The commands to, and replies of, a controller with this number of ANA groups.
fn read_ana(log: &AnaLog, offsets: bool) -> (AnaLog, usize) {
    let (mut events, mut pieces, mut commands) =
        (EventRequests::new(&inventory()), AnaLogReader::default(), 0);
    events.read(Reading::Log(nvme::log::lid::ANA));
    loop {
        let (command, purpose) =
            events.next_command(Nanos::ZERO).expect("the log has been asked for");
        let Purpose::Own(number) = purpose else { continue };
        let (what, asked) = (Reading::from_number(number), GetLogPage::from_sqe(&command.sqe));
        let bytes = log.to_bytes(asked.lsp & ana::GROUPS_ONLY != 0);
        let from = if offsets { asked.offset } else { 0 };
        let range = GetLogPage { offset: from, ..asked }.range_of(bytes.len() as u64);
        let mut page = vec![0; PAGE_BYTES];
        let piece = range.map_or(0..0, |range| range.start as usize..range.end as usize);
        page[..piece.len()].copy_from_slice(&bytes[piece]);
        commands += 1;
        events.read_completed();
        match pieces.add(what, &page, offsets) {
            Ok(log) => return (log, commands),
            Err(next) => events.read_next(next),
        }
        assert!(commands < 10_000, "it is read for ever");
    }
}

fn log_of(groups: u32) -> AnaLog {
    let group = |group| ana::AnaGroup {
        group,
        namespaces: 0,
        change_count: 0,
        state: (group % 3 + 1) as u8,
        reserved17: [0; 15],
    };
    AnaLog {
        change_count: 9,
        groups: (1..=groups)
            .map(|n| (group(n), (0..50).map(|k| Nsid(50 * n + k)).collect()))
            .collect(),
    }
}

/// A namespace's group may be the last of the log, after the first page.
#[test]
fn ana_log_is_read_whole() {
    for groups in [1, 20, 127, 128, 500, 65_535] {
        let (log, commands) = read_ana(&log_of(groups), true);
        assert_eq!(log.groups.len(), groups as usize);
        assert_eq!(log.state_of(groups), Some(nvme::AnaState((groups % 3 + 1) as u8)));
        assert_eq!(commands, (16 + 32 * groups as usize).div_ceil(PAGE_BYTES));
    }
}

/// A controller that lists namespaces although it was not asked to is read to the end too. A later
/// log starts again.
#[test]
fn groups_may_list_their_namespaces() {
    let (long, short) = (log_of(300), log_of(2));
    let mut pieces = AnaLogReader::default();
    for log in [&long, &short, &long] {
        let bytes = log.to_bytes(false);
        let mut what = Reading::Log(nvme::log::lid::ANA);
        let mut last = None;
        for piece in bytes.chunks(PAGE_BYTES) {
            assert!(last.is_none(), "it has ended before its last piece");
            match pieces.add(what, piece, true) {
                Ok(log) => last = Some(log),
                Err(next) => what = next,
            }
        }
        assert_eq!(last, AnaLog::from_bytes(&bytes).ok());
    }
}

/// A controller without log offsets would return the first page again, without the later groups.
#[test]
fn without_offsets_the_beginning_counts() {
    let (log, commands) = read_ana(&log_of(500), false);
    assert_eq!((log.groups.len(), commands, log.state_of(500)), (127, 1, None));
}

/// A controller that does not deliver the groups it announces is not read for ever.
#[test]
fn missing_log_page_times_out() {
    let mut pieces = AnaLogReader::default();
    let header = AnaHeader { change_count: 0, groups: 500, reserved10: [0; 6] };
    let mut first = header.as_page().to_vec();
    first.resize(PAGE_BYTES, 0xff);
    let mut what = Reading::Log(nvme::log::lid::ANA);
    let mut asked = 0;
    while let Err(next) = pieces.add(what, &first, true) {
        (what, asked) = (next, asked + 1);
        assert!(asked < 1000);
    }
    assert!(
        pieces.add(Reading::Rest(nvme::log::lid::ANA, 4096), &[], true).is_ok(),
        "one that is refused is the last"
    );
}

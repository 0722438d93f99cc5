use super::*;

fn parse(uri: &str) -> MultipathUri {
    uri.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// The column and the words of the error.
fn fails(uri: &str) -> (usize, String) {
    let error = uri.parse::<MultipathUri>().expect_err(uri);
    assert_eq!(error.uri, uri);
    (error.column, error.what)
}

#[test]
fn paths_are_device_uris() {
    let uri = parse(
        "multipath:?path=mem:1G?profile=tlc&path=mem:1G?profile=tlc%26delay=30ms%26ana=non-optimized&policy=queue-depth",
    );
    assert_eq!(uri.paths.len(), 2);
    assert_eq!(uri.policy, Policy::QueueDepth);
    assert_eq!((uri.paths[0].delay, uri.paths[0].ana), (Nanos::ZERO, AnaState::OPTIMIZED));
    assert_eq!(
        (uri.paths[1].delay, uri.paths[1].ana),
        (Nanos::from_millis(30), AnaState::NON_OPTIMIZED)
    );
    assert_eq!(uri.paths[1].text, "mem:1G?profile=tlc&delay=30ms&ana=non-optimized");
    assert_eq!(uri.paths[1].device, uri.paths[0].device);
    assert_eq!(
        parse("multipath:?path=mem:1G&path=mem:1G?node=1")
            .paths
            .iter()
            .map(|path| path.node)
            .collect::<Vec<_>>(),
        [None, Some(1)]
    );
    // Encoded through and through, it is the same.
    assert_eq!(parse("multipath:?path=mem%3A1G%3Fprofile%3Dtlc").paths[0], uri.paths[0]);
}

#[test]
fn parameters_have_defaults() {
    let uri = parse("multipath:?path=mem:1M");
    assert_eq!(
        (uri.policy, uri.nsid, uri.keep_alive),
        (Policy::Latency, None, Nanos::from_secs(1))
    );
    assert_eq!(uri.failover, FailoverConfig::default());
    let uri = parse(
        "multipath:?path=mem:1M&no_path_limit=8&no_path_timeout=2s&held_timeout=5s&keep_alive=250ms&nsid=2&unsafe_fast_failover&script=at%20200ms%20path%200%20lost;at%201s%20path%200%20back",
    );
    let failover = uri.failover;
    assert_eq!(
        (failover.no_path_limit, failover.no_path_timeout, failover.held_timeout),
        (8, Nanos::from_secs(2), Nanos::from_secs(5))
    );
    assert!(failover.unsafe_fast_failover);
    assert_eq!(
        (uri.nsid, uri.keep_alive, uri.script.steps.len()),
        (Some(2), Nanos::from_millis(250), 2)
    );
}

#[test]
fn paths_may_lead_to_other_processes() {
    let uri =
        parse("multipath:?path=vfio-user:/a?vectors=2%26node=1&path=vfio-user:/b&policy=numa");
    assert!(uri.is_served() && !parse("multipath:?path=mem:1M").is_served());
    let PathDevice::Served(first) = &uri.paths[0].device else { panic!("{uri:?}") };
    assert_eq!(
        (first.socket.to_str(), first.vectors, uri.paths[0].node),
        (Some("/a"), Some(2), Some(1))
    );
    assert!(
        DeviceUri::behind("multipath:?path=vfio-user:/a")
            .unwrap_err()
            .what
            .contains("other processes")
    );
}

#[test]
fn errors_name_their_column() {
    assert_eq!(fails("mem:1G").0, 1);
    assert!(fails("multipath:").1.contains("a `?` and paths must follow"));
    assert!(fails("multipath:?policy=numa").1.contains("no `path=` is given"));
    assert_eq!(
        fails("multipath:?pth=mem:1G"),
        (12, "there is no parameter `pth`; did you mean `path`?".into())
    );
    let (column, what) = fails("multipath:?path=mem:1G&policy=latensy");
    assert_eq!((column, what.contains("did you mean `latency`?")), (31, true), "{what}");
    let (column, what) = fails("multipath:?path=mem:1G?profle=tlc");
    assert_eq!((column, what.contains("did you mean `profile`?")), (17, true), "{what}");
    assert!(
        fails("multipath:?path=multipath:?path=mem:1G").1.contains("cannot be `multipath:` itself")
    );
    assert!(fails("multipath:?path=mem:1G?delay=fast").1.contains("`fast` is not a duration"));
    assert!(
        fails("multipath:?path=mem:1G?node=first").1.contains("`first` is no memory node's number")
    );
    assert!(
        fails("multipath:?path=mem:1G?ana=best").1.contains("known are optimized, non-optimized")
    );
    assert!(
        fails("multipath:?path=mem:1G&no_path_limit=many").1.contains("`many` is no whole number")
    );
    assert!(
        fails("multipath:?path=mem:1G&no_path_timeout=9").1.contains("write a number and its unit")
    );
    assert!(
        fails("multipath:?path=mem:1G&unsafe_fast_failover=maybe")
            .1
            .contains("neither `true` nor `false`")
    );
    assert!(
        fails("multipath:?path=mem:1G&script=at%201s%20path%203%20lost")
            .1
            .contains("names path 3, and there are 1")
    );
    assert!(fails("multipath:?path=%ff").1.contains("UTF-8"));
    assert!(
        fails("multipath:?path=vfio-user:/a&path=mem:1M")
            .1
            .contains("path `mem:1M` is a controller of this process")
    );
    assert!(
        fails("multipath:?path=vfio-user:/a?delay=2ms")
            .1
            .contains("`delay` is what `reap serve` takes")
    );
    assert!(fails("multipath:?path=vfio-user:/a?vector=2").1.contains("did you mean `vectors`?"));
    assert!(
        fails("multipath:?path=vfio-user:/a&script=at%201s%20path%200%20lost")
            .1
            .contains("`reap ctl`")
    );
    let many = format!("multipath:?{}", vec!["path=mem:1M"; 65].join("&"));
    assert!(fails(&many).1.contains("64 paths already"));
}

proptest::proptest! {
    #[test]
    fn parsing_never_panics(text in "multipath:\\?(path|policy|script|nsid|keep_alive|delay|ana|&|=|%26|%2|%|mem:1G|\\?|[a-z0-9:.]|é){0,40}") {
        _ = text.parse::<MultipathUri>();
    }
}

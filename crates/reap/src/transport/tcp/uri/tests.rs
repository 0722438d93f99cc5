use proptest::prelude::*;

use super::*;

#[test]
fn targets_are_named_by_address() {
    for (text, host, port, nqn, shown) in [
        ("tcp://192.0.2.1/nqn.a", "192.0.2.1", 4420, "nqn.a", "tcp://192.0.2.1:4420/nqn.a"),
        (
            "tcp://storage.example:8009/nqn.a:b",
            "storage.example",
            8009,
            "nqn.a:b",
            "tcp://storage.example:8009/nqn.a:b",
        ),
        (
            "tcp://[2001:db8::1]:1/nqn.a%3Fb",
            "2001:db8::1",
            1,
            "nqn.a?b",
            "tcp://[2001:db8::1]:1/nqn.a%3Fb",
        ),
        ("tcp://[::1]/nqn.a", "::1", 4420, "nqn.a", "tcp://[::1]:4420/nqn.a"),
        ("tcp://a/nqn.a?discover=yes", "a", 8009, "nqn.a", "tcp://a:8009/nqn.a?discover=yes"),
        ("tcp://a:4420/nqn.a?discover=yes", "a", 4420, "nqn.a", "tcp://a:4420/nqn.a?discover=yes"),
    ] {
        let uri: TcpUri = text.parse().unwrap();
        assert_eq!(
            (&uri.host[..], uri.port, &uri.nqn[..], &uri.to_string()[..]),
            (host, port, nqn, shown)
        );
    }
}

#[test]
fn parameters_have_nvme_clis_names() {
    let text = "tcp://a:4420/nqn.a?queues=2&hdr_digest=yes&data_digest=yes&keep_alive_tmo=3&reconnect_delay=1&ctrl_loss_tmo=-1&fast_io_fail_tmo=7&cqt=500&host_nqn=nqn.h&host_id=11111111-2222-3333-4444-555555555555&host_traddr=127.0.0.1";
    let uri: TcpUri = text.parse().unwrap();
    assert_eq!(uri.to_string(), text);
    assert_eq!(
        (uri.ctrl_loss_tmo, uri.cqt, uri.keep_alive_tmo),
        (Nanos::MAX, Nanos::from_millis(500), Nanos::from_secs(3))
    );
}

#[test]
fn errors_name_their_column() {
    for (uri, column, what) in [
        ("tcp:a/nqn.a", 1, "expected `tcp://HOST"),
        ("tcp://a", 7, "expected `tcp://HOST"),
        ("tcp://a:0/nqn.a", 7, "`a:0` is no address"),
        ("tcp://::1/nqn.a", 7, "is no address"),
        ("tcp://a/b", 9, "is no NQN"),
        ("tcp:///nqn.a", 8, "a host must be named"),
        ("tcp://a/nqn.a?queues=0", 15, "from 1 to 65535"),
        ("tcp://a/nqn.a?keep_alive_tmo=0", 15, "from 1 to"),
        ("tcp://a/nqn.a?hdr_digests=yes", 15, "did you mean `hdr_digest`?"),
        ("tcp://a/nqn.a?host_id=5", 9, "expected a UUID"),
    ] {
        let error = uri.parse::<TcpUri>().unwrap_err();
        assert_eq!(error.column, column, "{uri}: {error}");
        assert!(error.what.contains(what), "{uri}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "tcp://[a-z\\[\\]:0-9]{0,8}/(nqn\\.)?[a-z%0-9?]{0,8}(\\?[a-z=0-9&_]{0,14})?|.{0,20}") {
        match text.parse::<TcpUri>() {
            Ok(uri) => prop_assert_eq!(uri.to_string().parse(), Ok(uri)),
            Err(error) => prop_assert!(error.column <= text.len() + 1),
        }
    }
}

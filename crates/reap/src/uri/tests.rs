use proptest::prelude::*;

use super::*;

#[test]
fn sizes_use_fio_suffixes() {
    for (at, letter) in ["", "k", "m", "g", "t"].into_iter().enumerate() {
        for end in if letter.is_empty() { &["", "b"][..] } else { &["", "b", "ib"] } {
            let text = format!("3{letter}{end}");
            for text in [text.to_uppercase(), text] {
                assert_eq!(values::parse_size(&text), Ok(3 << (10 * at)), "{text}");
            }
        }
    }
    assert_eq!((values::parse_size("1pb"), values::parse_size("2P").is_err()), (Ok(1 << 50), true));
    assert_eq!("mem:1Gb".parse::<DeviceUri>(), "mem:1G".parse());
}

#[test]
fn default_device_uri_round_trips() {
    let uri: DeviceUri = "mem:1G?profile=optane".parse().unwrap();
    assert_eq!(uri.backing, Backing::Mem { bytes: 1 << 30 });
    assert_eq!(uri.to_string(), "mem:1G?profile=optane");
}

#[test]
fn uri_sets_controller_behaviour() {
    let default: DeviceUri = "mem:1G".parse().unwrap();
    assert_eq!(
        (default.pending, default.fetch, default.aborts),
        (PendingBit::Cleared, Fetch::Late, AbortOrder::Before)
    );
    assert!(!default.late_doorbells && !default.own_thread);
    let adversarial: DeviceUri =
        "mem:1G?pending=kept&fetch=mixed&aborts=after&doorbells=late&thread=own".parse().unwrap();
    assert_eq!(
        (adversarial.pending, adversarial.fetch, adversarial.aborts),
        (PendingBit::Kept, Fetch::Mixed, AbortOrder::After)
    );
    assert!(adversarial.late_doorbells && adversarial.own_thread);
}

#[test]
fn paths_are_percent_decoded() {
    let uri: DeviceUri = "file:/tmp/a%3Fb?size=1M&lba=4096".parse().unwrap();
    assert_eq!(uri.backing, Backing::File { path: "/tmp/a?b".into(), bytes: Some(1 << 20) });
}

#[test]
fn errors_name_their_column() {
    for (uri, column, words) in [
        ("", 1, "expected `mem:SIZE`"),
        ("disk:1G", 1, "no scheme `disk:`"),
        ("/dev/nvme0n1", 1, "use `kernel:PATH` for the file"),
        ("0000:01:00.0", 1, "for the drive at that PCI address use `pcie:0000:01:00.0`"),
        ("mem:", 5, "is not a size"),
        ("mem:12X", 5, "not a unit of size"),
        ("mem:1G&lba=4096", 5, "`1G&lba=4096` is not a size"),
        ("mem:100", 5, "less than one block"),
        ("mem:1000", 5, "not whole blocks"),
        ("mem:99999999T", 5, "out of range"),
        ("mem:1G?profile", 8, "needs a value"),
        ("mem:1G?profile=null&profile=optane", 21, "`profile` is given twice"),
        ("mem:1G?profle=null", 8, "did you mean `profile`"),
        ("mem:1G?profile=null&queues=65", 21, "from 1 to 64"),
        ("mem:1G?properties=soon", 8, "expected `now` or `late`"),
        ("mem:1G?property=late", 8, "did you mean `properties`"),
        ("mem:1G?pending=maybe", 8, "expected `cleared`, `kept` or `none`"),
        ("mem:1G?masks=no&pending=kept", 5, "needs vectors that can be masked"),
        ("mem:1G?fetch=soon", 8, "expected `late`, `early` or `mixed`"),
        ("mem:1G?aborts=first", 8, "expected `before`, `after`, `deferred` or `never`"),
        ("mem:1G?doorbells=slow", 8, "expected `now`, `late` or `mapped`"),
        ("mem:1G?doorbell=late", 8, "did you mean `doorbells`"),
        ("mem:1G?sgl=perhaps", 8, "expected `yes` or `no`"),
        ("mem:1G?thread=mine", 8, "expected `shared` or `own`"),
        ("mem:1G?size=1G", 8, "before the `?`"),
        ("mem:1G?lba=512&share=yes", 16, "`share=yes` applies only to `file:`"),
        ("file:", 6, "a path must follow"),
    ] {
        let error = uri.parse::<DeviceUri>().expect_err(uri);
        assert_eq!(error.column, column, "{error}");
        assert!(error.what.contains(words), "{error}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC*") {
        let _ = text.parse::<DeviceUri>();
        let _ = format!("mem:1G?{text}").parse::<DeviceUri>();
        let _ = format!("file:{text}").parse::<DeviceUri>();
    }
}

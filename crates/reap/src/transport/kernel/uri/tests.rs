use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;

use super::*;

#[test]
fn bare_paths_use_defaults() {
    let uri: KernelUri = "kernel:/dev/nvme0n1".parse().unwrap();
    let plain = KernelUri {
        path: "/dev/nvme0n1".into(),
        bytes: None,
        read_only: false,
        buffered: Buffered::Auto,
        lba_bytes: None,
    };
    assert_eq!(uri, plain);
    assert_eq!(uri.to_string(), "kernel:/dev/nvme0n1");
}

#[test]
fn every_parameter_is_read_and_printed() {
    let uri: KernelUri = "kernel:a%3Fb%20c?lba=4096&buffered=no&size=64m".parse().unwrap();
    assert_eq!(uri.path, PathBuf::from("a?b c"));
    assert_eq!(
        (uri.bytes, uri.buffered, uri.lba_bytes),
        (Some(64 << 20), Buffered::No, Some(4096))
    );
    assert_eq!(uri.to_string(), "kernel:a%3Fb%20c?size=64M&buffered=no&lba=4096");
    let uri: KernelUri = "kernel:/x?readonly=yes&buffered=auto".parse().unwrap();
    assert!(uri.read_only);
    assert_eq!(uri.to_string(), "kernel:/x?readonly=yes");
}

#[test]
fn errors_name_their_column() {
    for (uri, column, words) in [
        ("", 1, "expected `kernel:PATH`"),
        ("kernel", 1, "expected `kernel:PATH`"),
        ("kernel:", 8, "a path must follow"),
        ("kernel:?size=1G", 8, "a path must follow"),
        ("kernel:/a%00b", 8, "NUL"),
        ("kernel:/a?", 11, "needs a value, as in `buffered=yes`"),
        ("kernel:/a?size", 11, "needs a value"),
        ("kernel:/a?size=12X", 11, "not a unit of size"),
        ("kernel:/a?size=0", 11, "out of range"),
        ("kernel:/a?size=500", 11, "less than one block of 512"),
        ("kernel:/a?size=2K&lba=4096", 11, "less than one block of 4096"),
        ("kernel:/a?size=1M&readonly=yes", 11, "leave one of them out"),
        ("kernel:/a?lba=1024", 11, "`512` or `4096`"),
        ("kernel:/a?buffered=maybe", 11, "expected `yes`, `no` or `auto`"),
        ("kernel:/a?readonly=no&readonly=no", 23, "given twice"),
        ("kernel:/a?bufered=yes", 11, "did you mean `buffered`"),
        ("kernel:/a?read_only=yes", 11, "did you mean `readonly`"),
        ("kernel:/a?queues=3", 11, "known are size, readonly, buffered, lba"),
        ("kernel:/a?lba=512&force=yes", 19, "there is no `force=`"),
    ] {
        let error = uri.parse::<KernelUri>().expect_err(uri);
        assert_eq!(error.column, column, "{error}");
        assert!(error.what.contains(words), "{error}");
    }
}

fn any_uri() -> impl Strategy<Value = KernelUri> {
    let path = prop::collection::vec(1..=255u8, 1..40)
        .prop_map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
    let buffered = prop_oneof![Just(Buffered::Auto), Just(Buffered::Yes), Just(Buffered::No)];
    let lba = prop_oneof![Just(None), Just(Some(512)), Just(Some(4096))];
    // Up to the largest size that can be written; a device that is only read is not laid out.
    let bytes = prop::option::of((1..=1u64 << 38).prop_map(|n| n * 4096));
    (path, bytes, any::<bool>(), buffered, lba).prop_map(
        |(path, bytes, read_only, buffered, lba_bytes)| KernelUri {
            path,
            read_only: read_only && bytes.is_none(),
            bytes,
            buffered,
            lba_bytes,
        },
    )
}

proptest! {
    #[test]
    fn uris_round_trip(uri in any_uri()) {
        prop_assert_eq!(uri.to_string().parse::<KernelUri>().unwrap(), uri);
    }

    #[test]
    fn random_text_round_trips(text in "\\PC*") {
        for text in [text.clone(), format!("kernel:{text}"), format!("kernel:/x?{text}")] {
            if let Ok(uri) = text.parse::<KernelUri>() {
                prop_assert_eq!(uri.to_string().parse::<KernelUri>().unwrap(), uri);
            }
        }
    }
}

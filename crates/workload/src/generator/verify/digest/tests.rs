use super::super::header::HEADER;
use super::*;

/// From blocks of 512 bytes that fio 3.33 wrote with verify_pattern=0x5a.
const OF_FIO: [(VerifyKind, &str); 4] = [
    (VerifyKind::Crc32c, "5aef5f04"),
    (VerifyKind::XxHash, "44c80cc1"),
    (VerifyKind::Md5, "f2f02d7d685e8888c8afca247ff9a782"),
    (
        VerifyKind::Sha256,
        "fbefdea974620f285a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a8000000000000000000000000000000000000000000000000000000000000000c00c000000000000",
    ),
];

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn digests_are_fios() {
    for (kind, wanted) in OF_FIO {
        let data = vec![0x5a; 512 - HEADER - len_of(kind)];
        assert_eq!(text(&digest(kind, &data)[..len_of(kind)]), wanted, "{}", kind.name());
        assert_eq!(len_of(kind), wanted.len() / 2);
    }
}

#[test]
fn digests_are_shown_shortly() {
    let shown = |kind| super::shown(&digest(kind, &[0x5a; 408])[..len_of(kind)]);
    assert!(shown(VerifyKind::Crc32c).starts_with("0x"));
    assert_eq!(shown(VerifyKind::Sha256), "fbefdea974620f285a5a5a5a5a5a5a5a");
}

use super::super::header::HEADER;
use super::*;

/// From blocks of 512 bytes that fio 3.33 wrote with verify_pattern=0x5a.
const OF_FIO: [(VerifyKind, &str); 13] = [
    (VerifyKind::Crc32c, "5aef5f04"),
    (VerifyKind::Crc32, "90e18725"),
    (VerifyKind::Crc7, "13"),
    (VerifyKind::Crc16, "ad19"),
    (VerifyKind::Crc64, "92fb6f7d794acb4c"),
    (VerifyKind::Sha1, "d88021471ce61b6bff88f9c63f963443ec956056"),
    (VerifyKind::Sha3_224, "7ec1ee6754c06140e50b9a57473f297cc55ae272205a8f010633d66f"),
    (VerifyKind::Sha3_256, "2c3959255822f12bd0abfae6915cba4ada9aa7e655fa6ea6129531672891d5ea"),
    (VerifyKind::Sha3_384, "6c89ac1e112ee2dd0c8da41a2575aa9ce0099da138e10ea861b643e62c0486e0221476180784221f555365a349161be3"),
    (
        VerifyKind::Sha3_512,
        "0ebeb75f7be4399f414616cf785668f99bb24fe1c169edb67b16020ecf64fd0f323afb40d9fb6bfbdea0af9cbc7465a16821638a9a4eeede475f2dfb43b6b82a",
    ),
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
        assert_eq!(text(digest(kind, &data).as_bytes()), wanted, "{}", kind.name());
        assert_eq!(len_of(kind), wanted.len() / 2);
    }
}

#[test]
fn a_digest_is_shown_as_a_number_or_by_its_first_bytes() {
    let shown = |kind| Digest::of(digest(kind, &[0x5a; 408]).as_bytes()).to_string();
    assert!(shown(VerifyKind::Crc32).starts_with("0x"));
    assert_eq!(shown(VerifyKind::Sha256), "fbefdea974620f285a5a5a5a5a5a5a5a");
}

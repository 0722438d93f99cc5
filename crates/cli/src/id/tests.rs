use nvme::Text;
use nvme::identify::{Controller, IdentifyNamespace, LbaFormat};
use proptest::prelude::*;

use super::*;

/// Compared with nvme-cli's on QEMU's controller by `tests/guest/pcie.sh`.
#[test]
fn fields_match_nvme_cli_layout() {
    let controller = Controller {
        vid: 0x1b36,
        sn: Text::ascii("LAB0"),
        mdts: 7,
        subnqn: Text::nul_terminated("nqn.x"),
        ..Controller::default()
    };
    let shown = lines(&controller_fields(&controller), 10);
    for line in [
        "vid       : 0x1b36\n",
        "ssvid     : 0\n",
        "sn        : LAB0\n",
        "mdts      : 7\n",
        "subnqn    : nqn.x\n",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    let mut namespace = IdentifyNamespace {
        nsze: 0x1000,
        nlbaf: 1,
        flbas: 1,
        eui64: [1, 2, 3, 4, 5, 6, 7, 8],
        ..IdentifyNamespace::default()
    };
    namespace.lbaf[0] = LbaFormat::new().with_lbads(9);
    namespace.lbaf[1] = LbaFormat::new().with_lbads(12).with_ms(64).with_rp(2);
    let fields = namespace_fields(&namespace);
    assert_eq!(fields["lbafs"][1], json!({ "lbaf": 1, "ms": 64, "ds": 12, "rp": 2, "in_use": 1 }));
    let shown = lines(&fields, 8);
    assert!(
        shown.starts_with("nsze    : 0x1000\nncap    : 0\n")
            && shown.contains("eui64   : 0102030405060708\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with(
            "lbaf  0 : ms:0   lbads:9  rp:0 \nlbaf  1 : ms:64  lbads:12 rp:0x2 (in use)\n"
        ),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn any_page_makes_printable_lines(bytes in prop::collection::vec(any::<u8>(), 4096)) {
        for fields in [controller_fields(&Controller::from_page(&bytes).unwrap()), namespace_fields(&IdentifyNamespace::from_page(&bytes).unwrap())] {
            let lines = lines(&fields, 10);
            prop_assert!(lines.chars().all(|c| matches!(c, '\n' | ' '..='~')) && lines.lines().all(|line| line.contains(':')));
        }
    }
}

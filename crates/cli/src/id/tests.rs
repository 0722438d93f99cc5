use nvme::identify::{Controller, Fabrics, LbaFormat, Namespace, PowerState};
use nvme::{Status, Text};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn object(fields: &Fields) -> Value {
    serde_json::from_str(&serde_json::to_string(fields).unwrap()).unwrap()
}

fn a_controller() -> Controller {
    let mut controller = Controller {
        vid: 0x1b36,
        sn: Text::ascii("LAB0"),
        ieee: [0x00, 0x54, 0x52],
        tnvmcap: (1u128 << 70).into(),
        crdt: [1, 2, 3],
        npss: 1,
        subnqn: Text::nul_terminated("nqn.x"),
        fabrics: Fabrics { ioccsz: 4, ..Fabrics::default() },
        ..Controller::default()
    };
    controller.psd[0] = PowerState { mp: 2500, enlat: 16, exlat: 4, ..PowerState::default() };
    controller.psd[1] = PowerState { mp: 9, flags: PowerState::MXPS | PowerState::NOPS, idlp: 7, ips: 0x40, ..PowerState::default() };
    controller
}

/// Compared with nvme-cli 2.3's on QEMU's controller by `tests/pcie.sh`.
#[test]
fn a_controller_is_laid_out_as_nvme_cli_lays_it_out() {
    let lines = controller::fields(&a_controller()).lines(10);
    for line in [
        "vid       : 0x1b36\n",
        "ssvid     : 0\n",
        "sn        : LAB0                \n",
        "ieee      : 525400\n",
        "fguid     : 00000000-0000-0000-0000-000000000000\n",
        "tnvmcap   : 1180591620717411303424\n",
        "subnqn    : nqn.x\n",
        "ps      0 : mp:25.00W operational enlat:16 exlat:4 rrt:0 rrl:0\n            rwt:0 rwl:0 idle_power:- active_power:-\n            active_power_workload:-\n",
        "ps      1 : mp:0.0009W non-operational enlat:0 exlat:0 rrt:0 rrl:0\n            rwt:0 rwl:0 idle_power:0.0007W active_power:-\n",
    ] {
        assert!(lines.contains(line), "{line}\n{lines}");
    }
}

#[test]
fn a_controller_has_nvme_clis_keys_and_numbers() {
    let shown = controller::fields(&a_controller());
    let json = serde_json::to_string(&shown).unwrap();
    assert!(json.contains(r#""tnvmcap":1180591620717411303424,"#), "{json}");
    let object = object(&shown);
    assert_eq!((&object["ieee"], &object["crdt3"], &object["ioccsz"]), (&0x525400.into(), &3.into(), &4.into()));
    assert_eq!(
        (&object["psds"][1]["max_power"], &object["psds"][1]["idle_scale"], object["psds"].as_array().unwrap().len()),
        (&9.into(), &1.into(), 2)
    );
    let nameless = self::object(&controller::fields(&Controller::default()));
    assert!(nameless.get("subnqn").is_none() && controller::fields(&Controller::default()).lines(10).contains("\nsubnqn    : \n"));
}

#[test]
fn a_namespace_is_laid_out_as_nvme_cli_lays_it_out() {
    let mut namespace =
        Namespace { nsze: 0x1000, nlbaf: 1, flbas: 1, nsfeat: 0x10, npdg: 5, eui64: [1, 2, 3, 4, 5, 6, 7, 8], ..Namespace::default() };
    namespace.lbaf[0] = LbaFormat::new().with_lbads(9);
    namespace.lbaf[1] = LbaFormat::new().with_lbads(12).with_ms(64).with_rp(2);
    let fields = namespace::fields(&namespace);
    let lines = fields.lines(8);
    assert!(lines.starts_with("nsze    : 0x1000\nncap    : 0\n"), "{lines}");
    assert!(lines.contains("npdg    : 5\n") && lines.contains("eui64   : 0102030405060708\n"), "{lines}");
    assert!(lines.ends_with("lbaf  0 : ms:0   lbads:9  rp:0 \nlbaf  1 : ms:64  lbads:12 rp:0x2 (in use)\n"), "{lines}");
    let object = object(&fields);
    assert_eq!(object["lbafs"][1], serde_json::json!({ "lbaf": 1, "ms": 64, "ds": 12, "rp": 2, "in_use": 1 }));
    assert!(self::object(&namespace::fields(&Namespace::default())).get("npwg").is_none());
}

/// What a controller answers, of whose 4000 identifiers every second is active.
fn answer(cns: u8, nsid: Nsid) -> Answer {
    let active = |nsid: &u32| nsid.is_multiple_of(2);
    Ok(match cns {
        cns::ACTIVE_NAMESPACES => {
            let list = identify::NamespaceList::of((nsid.0 + 1..=4000).filter(active).map(Nsid));
            Box::new(list.as_page().try_into().unwrap())
        }
        // Of an identifier that is not active, either all is 0 or the command fails.
        _ if nsid.0 % 4 == 1 => return Err(IdentifyError::Status(Status::INVALID_NAMESPACE_OR_FORMAT)),
        _ => Box::new(Namespace { nsze: u64::from(active(&nsid.0)), ..Namespace::default() }.as_page().try_into().unwrap()),
    })
}

#[test]
fn namespaces_are_listed_or_numbered() {
    let controller = Controller { ver: 0x1_0400, nn: 4000, ..Controller::default() };
    let all: Vec<Nsid> = (1..=2000).map(|n| Nsid(2 * n)).collect();
    assert_eq!(active(&controller, answer).unwrap(), all);
    let refusing =
        |cns, nsid| if cns == cns::ACTIVE_NAMESPACES { Err(IdentifyError::Status(Status::INVALID_FIELD)) } else { answer(cns, nsid) };
    assert_eq!(active(&controller, refusing).unwrap(), all);
    // It reports no version: then it may never answer.
    let old = Controller { ver: 0, ..controller };
    let silent = |cns, nsid| if cns == cns::ACTIVE_NAMESPACES { Err(IdentifyError::Gone) } else { answer(cns, nsid) };
    assert_eq!(active(&old, silent).unwrap(), all);
    assert!(active(&Controller { nn: u32::MAX, ..old }, silent).is_err());
    assert!(active(&Controller { nn: 1, ..old }, |_, _| Err(IdentifyError::Gone)).is_err());
}

#[test]
fn endless_lists_have_an_end() {
    let controller = Controller { ver: 0x1_0400, ..Controller::default() };
    let endless = |_, nsid: Nsid| {
        let list = identify::NamespaceList::of((nsid.0 + 1..).map(Nsid));
        Ok(Box::new(list.as_page().try_into().unwrap()))
    };
    assert_eq!(active(&controller, endless).unwrap().len(), MOST_NAMESPACES);
}

proptest! {
    #[test]
    fn whatever_a_controller_writes_is_shown_in_one_line_each(bytes in prop::collection::vec(any::<u8>(), 4096)) {
        for fields in [controller::fields(&Controller::from_page(&bytes).unwrap()), namespace::fields(&Namespace::from_page(&bytes).unwrap())] {
            let lines = fields.lines(10);
            prop_assert!(lines.chars().all(|c| matches!(c, '\n' | ' '..='~')));
            prop_assert!(lines.lines().all(|line| line.starts_with(' ') || line.contains(':')));
            let object = object(&fields);
            prop_assert!(object.as_object().unwrap().len() > 30);
        }
    }
}

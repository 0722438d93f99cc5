//! Requirements of revision 2.1 for an I/O controller, and consistency of the log pages of
//! supported commands, features and log pages.

use nvme::AnaState;
use nvme::admin::{csi, smart_event};
use nvme::identify::IndependentNamespace;
use nvme::log::{IdentifiersSupported, Supported};

use super::*;
use crate::Ana;

/// A controller with all optional commands, and one without.
fn hosts() -> [Host<TestPort>; 2] {
    let most = Config {
        shadow_doorbells: true,
        ana: Some(Ana::new(AnaState::OPTIMIZED)),
        ..Config::new(slow())
    };
    let cache = WriteCache::new(Mem::new(1 << 20, crate::Budget::new(1 << 20)), 512, 99);
    let least = Config {
        write_zeroes: false,
        dataset_management: false,
        checks: false,
        uncorrectable: false,
        ..Config::new(slow())
    };
    let with = |config, namespace| Host::new(config, vec![namespace]).ready();
    [with(most, NamespaceConfig::new(cache, 512).unwrap()), with(least, mem(1 << 20, 512))]
}

fn get(host: &mut Host<TestPort>, fid: u8, value: u32, select: u8) -> Result<u32, Status> {
    let answer = host
        .admin(GetFeatures { value, select, nsid: Nsid(1), ..GetFeatures::current(fid) }.to_sqe());
    if answer.status().is_success() { Ok(answer.result) } else { Err(answer.status().kind()) }
}

fn set(host: &mut Host<TestPort>, fid: u8, value: u32) -> Status {
    kind(host, SetFeatures::new(fid, value).to_sqe())
}

fn reset(host: &mut Host<TestPort>) {
    host.set_cc(nvme::regs::Cc::new());
    host.settle();
    host.enable();
}

#[test]
fn log_00h_lists_every_log() {
    let lists = hosts().map(|mut host| {
        let supported: IdentifiersSupported = log(&mut host, lid::SUPPORTED_LOG_PAGES, false);
        let page = host.page(1);
        for id in 0..=255 {
            let status = kind(&mut host, GetLogPage::new(id, 64, short(page, 64)).to_sqe());
            let listed = supported.ids[usize::from(id)];
            assert_eq!(
                status,
                if listed.supported() { Status::SUCCESS } else { Status::INVALID_LOG_PAGE },
                "{id:#x}"
            );
            let indexed =
                GetLogPage { offset_is_index: true, ..GetLogPage::new(id, 64, short(page, 64)) };
            assert!(
                listed.into_bits() < 2 && kind(&mut host, indexed.to_sqe()) != Status::SUCCESS,
                "{id:#x}"
            );
        }
        (0..=255_u8).filter(|&id| supported.ids[usize::from(id)].supported()).collect::<Vec<_>>()
    });
    let [most, least] = lists;
    assert_eq!(least, [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x12, 0x13]);
    assert_eq!(most, [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0c, 0x12, 0x13]);
}

#[test]
fn log_05h_lists_every_admin_command() {
    let lists = hosts().map(|mut host| {
        let supported: CommandsSupported = log(&mut host, lid::COMMANDS_SUPPORTED, false);
        for _ in 0..4 {
            host.post_admin(nvme::admin::async_event_request());
        }
        for opcode in 0..=255 {
            // Field values that are invalid for every command, so that none has an effect; the
            // limit of Asynchronous Event Requests is reached.
            let status = kind(&mut host, Sqe { opcode, cdw10: u32::MAX, ..Sqe::default() });
            assert_eq!(
                status != Status::INVALID_OPCODE,
                supported.admin[usize::from(opcode)].supported(),
                "{opcode:#x}: {status:?}"
            );
        }
        (0..=255_u8)
            .filter(|&opcode| supported.admin[usize::from(opcode)].supported())
            .collect::<Vec<_>>()
    });
    let [most, least] = lists;
    assert_eq!(least, [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18]);
    assert_eq!(most, [&least[..], &[0x7c]].concat());
}

#[test]
fn log_05h_lists_every_io_command() {
    let lists = hosts().map(|mut host| {
        let supported: CommandsSupported = log(&mut host, lid::COMMANDS_SUPPORTED, false);
        let mut pair = host.pair(1, 16);
        for opcode in 0..=255 {
            let cid = host.cid();
            host.post(&mut pair, Sqe { opcode, nsid: 77, ..Sqe::default() }, cid);
            host.ring(&pair);
            host.settle();
            let status = host.reap(&mut pair, 9)[0].status().kind();
            let listed = supported.io[usize::from(opcode)].supported();
            assert_eq!(
                status,
                if listed { Status::INVALID_NAMESPACE_OR_FORMAT } else { Status::INVALID_OPCODE },
                "{opcode:#x}"
            );
        }
        (0..=255_u8)
            .filter(|&opcode| supported.io[usize::from(opcode)].supported())
            .collect::<Vec<_>>()
    });
    let [most, least] = lists;
    assert_eq!(
        (least, most),
        (vec![0x00, 0x01, 0x02], vec![0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0c])
    );
}

#[test]
fn log_05h_names_effects_and_scopes() {
    let [mut host, _] = hosts();
    let page: CommandsSupported = log(&mut host, lid::COMMANDS_SUPPORTED, false);
    let io = |opcode: u8| page.io[usize::from(opcode)];
    let base = Supported::new().with_supported(true).with_scope(scope::NAMESPACE);
    assert_eq!(
        (io(opcode::io::READ), io(opcode::io::COMPARE), io(opcode::io::FLUSH)),
        (base, base, base)
    );
    for opcode in [
        opcode::io::WRITE,
        opcode::io::WRITE_ZEROES,
        opcode::io::DATASET_MANAGEMENT,
        opcode::io::WRITE_UNCORRECTABLE,
    ] {
        assert_eq!(io(opcode), base.with_lbcc(true), "{opcode:#x}");
    }
    let admin = |opcode: u8| page.admin[usize::from(opcode)].scope();
    assert_eq!(
        (admin(opcode::admin::IDENTIFY), admin(opcode::admin::SET_FEATURES)),
        (scope::CONTROLLER, scope::CONTROLLER | scope::NAMESPACE)
    );
    assert_eq!((io(0xff), page.admin[0xff]), (Supported::new(), Supported::new()));
}

#[test]
fn log_12h_lists_every_feature() {
    let lists = hosts().map(|mut host| {
        let supported: IdentifiersSupported = log(&mut host, lid::FEATURES_SUPPORTED, false);
        let page = host.page(1);
        for id in 0..=255 {
            let listed = supported.ids[usize::from(id)].supported();
            let read =
                GetFeatures { nsid: Nsid(1), data: short(page, 512), ..GetFeatures::current(id) };
            assert_eq!(
                kind(&mut host, read.to_sqe()),
                if listed { Status::SUCCESS } else { Status::INVALID_FIELD },
                "{id:#x}"
            );
            let write = SetFeatures {
                nsid: Nsid::ALL,
                data: short(page, 512),
                ..SetFeatures::new(id, 0_u32)
            };
            assert_eq!(
                kind(&mut host, write.to_sqe()),
                if listed { Status::SUCCESS } else { Status::INVALID_FIELD },
                "{id:#x}"
            );
        }
        assert_eq!(supported.ids[usize::from(fid::ARBITRATION)].scope(), scope::CONTROLLER);
        assert_eq!(supported.ids[usize::from(fid::ERROR_RECOVERY)].scope(), scope::NAMESPACE);
        (0..=255_u8).filter(|&id| supported.ids[usize::from(id)].supported()).collect::<Vec<_>>()
    });
    let [most, least] = lists;
    assert_eq!(least, [0x01, 0x02, 0x04, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0f, 0x16]);
    assert_eq!(most, [0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0f, 0x16]);
}

#[test]
fn log_pages_are_read_in_parts() {
    let mut host = host();
    let whole: CommandsSupported = log(&mut host, lid::COMMANDS_SUPPORTED, false);
    let page = host.page(1);
    let part = GetLogPage {
        offset: 1024,
        ..GetLogPage::new(lid::COMMANDS_SUPPORTED, 1024, short(page, 1024))
    };
    assert_eq!(kind(&mut host, part.to_sqe()), Status::SUCCESS);
    assert_eq!(host.port.memory.bytes(page, 1024), whole.as_page()[1024..2048]);
    for id in [lid::SUPPORTED_LOG_PAGES, lid::FEATURES_SUPPORTED] {
        let command = GetLogPage { offset: 1024, ..GetLogPage::new(id, 64, short(page, 64)) };
        assert_eq!(kind(&mut host, command.to_sqe()), Status::SUCCESS, "the end");
        assert_eq!(
            kind(&mut host, GetLogPage { offset: 1028, ..command }.to_sqe()),
            Status::INVALID_FIELD
        );
        assert_eq!(
            kind(&mut host, GetLogPage { nsid: Nsid(1), ..command }.to_sqe()),
            Status::INVALID_FIELD
        );
    }
}

#[test]
fn identify_agrees_with_the_logs() {
    for mut host in hosts() {
        let page: ControllerPage = identify(&mut host, cns::CONTROLLER, 0);
        let commands: CommandsSupported = log(&mut host, lid::COMMANDS_SUPPORTED, false);
        let health: Smart = log(&mut host, lid::SMART, false);
        assert_eq!(
            page.lpa,
            ControllerPage::LPA_EFFECTS
                | ControllerPage::LPA_EXTENDED_DATA
                | ControllerPage::LPA_MISCELLANEOUS
        );
        for (opcode, bit) in [
            (opcode::io::COMPARE, ControllerPage::ONCS_COMPARE),
            (opcode::io::WRITE_UNCORRECTABLE, ControllerPage::ONCS_WRITE_UNCORRECTABLE),
            (opcode::io::DATASET_MANAGEMENT, ControllerPage::ONCS_DATASET_MANAGEMENT),
            (opcode::io::WRITE_ZEROES, ControllerPage::ONCS_WRITE_ZEROES),
            (opcode::io::VERIFY, ControllerPage::ONCS_VERIFY),
        ] {
            assert_eq!(
                page.oncs & bit != 0,
                commands.io[usize::from(opcode)].supported(),
                "{opcode:#x}"
            );
        }
        assert_eq!((page.npss, page.awun, page.awupf), (0, 0, 0));
        assert!(health.temperature.get() < page.wctemp && page.wctemp < page.cctemp);
        assert_eq!(
            get(&mut host, fid::TEMPERATURE_THRESHOLD, 0, select::DEFAULT),
            Ok(page.wctemp.into())
        );
    }
}

#[test]
fn namespaces_of_every_command_set() {
    let mut host =
        Host::new(Config::new(slow()), vec![mem(1 << 20, 512).with_nsid(Nsid(3))]).ready();
    assert_eq!(
        identify::<IndependentNamespace>(&mut host, cns::INDEPENDENT_NAMESPACE, 3).nstat,
        IndependentNamespace::NSTAT_READY
    );
    assert_eq!(
        identify::<IndependentNamespace>(&mut host, cns::INDEPENDENT_NAMESPACE, 2).as_page(),
        [0; IndependentNamespace::LEN]
    );
    let list: NamespaceList = identify(&mut host, cns::COMMAND_SET_ACTIVE_NAMESPACES, 0);
    assert_eq!(list.iter().collect::<Vec<_>>(), [Nsid(3)]);
    let page = host.page(1);
    let mut ask = |what, nsid, csi| {
        kind(
            &mut host,
            Identify { csi, ..Identify::new(what, Nsid(nsid), short(page, 4096)) }.to_sqe(),
        )
    };
    assert_eq!(ask(cns::INDEPENDENT_NAMESPACE, 4, csi::NVM), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(
        ask(cns::COMMAND_SET_ACTIVE_NAMESPACES, u32::MAX, csi::NVM),
        Status::INVALID_NAMESPACE_OR_FORMAT
    );
    assert_eq!(
        ask(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, 2),
        Status::INVALID_FIELD,
        "no zoned namespaces"
    );
}

#[test]
fn ana_groups_are_identified_independently() {
    let [mut host, _] = hosts();
    assert_eq!(
        identify::<IndependentNamespace>(&mut host, cns::INDEPENDENT_NAMESPACE, 1).anagrpid,
        1
    );
}

#[test]
fn power_states_beyond_npss_are_refused() {
    let mut host = host();
    for refused in [1, 31, 3 << 5, 7 << 5] {
        assert_eq!(
            set(&mut host, fid::POWER_MANAGEMENT, refused),
            Status::INVALID_FIELD,
            "{refused:#x}"
        );
    }
    assert_eq!(set(&mut host, fid::POWER_MANAGEMENT, 2 << 5), Status::SUCCESS);
    assert_eq!(get(&mut host, fid::POWER_MANAGEMENT, 0, select::CURRENT), Ok(2 << 5));
}

fn threshold(kelvin: u16, sensor: u8, thsel: u8) -> u32 {
    TemperatureThreshold::new().with_tmpth(kelvin).with_tmpsel(sensor).with_thsel(thsel).into_bits()
}

#[test]
fn temperature_thresholds_are_independent() {
    let mut host = host();
    let both = |host: &mut _, select| {
        [0, 1].map(|thsel| {
            get(host, fid::TEMPERATURE_THRESHOLD, threshold(0, 0, thsel), select).unwrap()
        })
    };
    assert_eq!(both(&mut host, select::CURRENT), [343, 0]);
    assert_eq!(set(&mut host, fid::TEMPERATURE_THRESHOLD, threshold(350, 0, 0)), Status::SUCCESS);
    assert_eq!(
        set(&mut host, fid::TEMPERATURE_THRESHOLD, threshold(280, TemperatureThreshold::ALL, 1)),
        Status::SUCCESS
    );
    assert_eq!(both(&mut host, select::CURRENT), [350, 280]);
    assert_eq!([both(&mut host, select::DEFAULT), both(&mut host, select::SAVED)], [[343, 0]; 2]);
    reset(&mut host);
    assert_eq!(both(&mut host, select::CURRENT), [343, 0]);
}

#[test]
fn temperature_selectors_without_a_sensor() {
    let mut host = host();
    for (sensor, thsel) in [(1, 0), (8, 1), (9, 0), (14, 0), (0, 2), (0, 3), (15, 2)] {
        let value = threshold(300, sensor, thsel);
        assert_eq!(
            set(&mut host, fid::TEMPERATURE_THRESHOLD, value),
            Status::INVALID_FIELD,
            "{sensor}, {thsel}"
        );
        assert_eq!(
            get(&mut host, fid::TEMPERATURE_THRESHOLD, value, select::CURRENT),
            Err(Status::INVALID_FIELD),
            "{sensor}, {thsel}"
        );
    }
    let all = threshold(0, TemperatureThreshold::ALL, 0);
    assert_eq!(
        get(&mut host, fid::TEMPERATURE_THRESHOLD, all, select::CURRENT),
        Err(Status::INVALID_FIELD),
        "reserved here"
    );
    let hysteresis = TemperatureThreshold::new().with_tmpth(350).with_tmpthh(1).into_bits();
    assert_eq!(set(&mut host, fid::TEMPERATURE_THRESHOLD, hysteresis), Status::INVALID_FIELD);
}

#[test]
fn temperature_at_a_threshold_is_critical() {
    let mut host = host();
    let is_critical =
        |host: &mut _| log::<Smart>(host, lid::SMART, true).critical_warning.into_bits();
    assert_eq!(is_critical(&mut host), 0);
    // Over and under threshold in kelvin: 40 °C is 313 K.
    for (over, under, warning) in [(313, 0, 2), (314, 0, 0), (314, 313, 2), (314, 312, 0)] {
        assert_eq!(
            set(&mut host, fid::TEMPERATURE_THRESHOLD, threshold(over, 0, 0)),
            Status::SUCCESS
        );
        assert_eq!(
            set(&mut host, fid::TEMPERATURE_THRESHOLD, threshold(under, 0, 1)),
            Status::SUCCESS
        );
        assert_eq!(is_critical(&mut host), warning, "{over}, {under}");
    }
}

#[test]
fn temperature_events_repeat_while_critical() {
    let mut host = host();
    let reported = |host: &mut Host<TestPort>| {
        host.settle();
        let answers =
            host.reap_admin().into_iter().chain(host.events.drain(..)).collect::<Vec<_>>();
        let events = answers.iter().map(|cqe| AsyncEvent::from_bits(cqe.result));
        events.map(|event| (event.event_type(), event.info(), event.lid())).collect::<Vec<_>>()
    };
    let expected = [(event_type::SMART, smart_event::TEMPERATURE_THRESHOLD, lid::SMART)];
    for _ in 0..3 {
        host.post_admin(nvme::admin::async_event_request());
    }
    assert_eq!(set(&mut host, fid::TEMPERATURE_THRESHOLD, threshold(300, 0, 0)), Status::SUCCESS);
    assert_eq!(reported(&mut host), [], "not enabled");
    assert_eq!(set(&mut host, fid::ASYNC_EVENT_CONFIG, 1 << 1), Status::SUCCESS);
    assert_eq!(reported(&mut host), expected);
    log::<Smart>(&mut host, lid::SMART, true);
    assert_eq!(reported(&mut host), [], "retained");
    log::<Smart>(&mut host, lid::SMART, false);
    assert_eq!(reported(&mut host), expected, "it lasts");
    assert_eq!(set(&mut host, fid::TEMPERATURE_THRESHOLD, threshold(343, 0, 0)), Status::SUCCESS);
    log::<Smart>(&mut host, lid::SMART, false);
    assert_eq!(reported(&mut host), [], "over");
}

#[test]
fn error_recovery_is_each_namespaces_own() {
    let mut host = host();
    let set = |host: &mut _, nsid, value: u32| {
        kind(host, SetFeatures { nsid, ..SetFeatures::new(fid::ERROR_RECOVERY, value) }.to_sqe())
    };
    let both = |host: &mut Host<TestPort>, select| {
        [1, 2].map(|n| {
            host.admin(
                GetFeatures { nsid: Nsid(n), select, ..GetFeatures::current(fid::ERROR_RECOVERY) }
                    .to_sqe(),
            )
            .result
        })
    };
    assert_eq!(set(&mut host, Nsid(2), 7), Status::SUCCESS);
    assert_eq!(
        (both(&mut host, select::CURRENT), both(&mut host, select::DEFAULT)),
        ([0, 7], [0, 0])
    );
    assert_eq!(both(&mut host, select::CAPABILITIES), [0b110; 2], "changeable, of a namespace");
    assert_eq!(set(&mut host, Nsid::ALL, 9), Status::SUCCESS);
    assert_eq!(
        (both(&mut host, select::CURRENT), both(&mut host, select::SAVED)),
        ([9, 9], [0, 0])
    );
    reset(&mut host);
    assert_eq!(both(&mut host, select::CURRENT), [0, 0]);
}

#[test]
fn error_recovery_of_no_namespace() {
    let mut host =
        Host::new(Config::new(slow()), vec![mem(1 << 20, 512).with_nsid(Nsid(3))]).ready();
    let read = |nsid| GetFeatures { nsid, ..GetFeatures::current(fid::ERROR_RECOVERY) }.to_sqe();
    let write = |nsid, value: u32| {
        SetFeatures { nsid, ..SetFeatures::new(fid::ERROR_RECOVERY, value) }.to_sqe()
    };
    for (nsid, refusal) in [
        (0, Status::INVALID_NAMESPACE_OR_FORMAT),
        (2, Status::INVALID_FIELD),
        (4, Status::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        assert_eq!(kind(&mut host, read(Nsid(nsid))), refusal, "{nsid}");
        assert_eq!(kind(&mut host, write(Nsid(nsid), 1)), refusal, "{nsid}");
    }
    assert_eq!(kind(&mut host, read(Nsid::ALL)), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(
        kind(&mut host, write(Nsid(3), 1 << 16)),
        Status::INVALID_FIELD,
        "DULBE, but no DAE"
    );
}

#[test]
fn write_atomicity_keeps_its_bit() {
    let mut host = host();
    assert_eq!(set(&mut host, fid::WRITE_ATOMICITY, u32::MAX), Status::SUCCESS);
    assert_eq!(get(&mut host, fid::WRITE_ATOMICITY, 0, select::CURRENT), Ok(1));
    reset(&mut host);
    assert_eq!(get(&mut host, fid::WRITE_ATOMICITY, 0, select::CURRENT), Ok(0));
}

#[test]
fn mandatory_features_are_not_saveable() {
    let mut host = host();
    for fid in [
        fid::POWER_MANAGEMENT,
        fid::TEMPERATURE_THRESHOLD,
        fid::ERROR_RECOVERY,
        fid::WRITE_ATOMICITY,
    ] {
        let save = SetFeatures { save: true, nsid: Nsid::ALL, ..SetFeatures::new(fid, 0_u32) };
        assert_eq!(kind(&mut host, save.to_sqe()), Status::FEATURE_NOT_SAVEABLE, "{fid:#x}");
        let capabilities =
            Capabilities::from_bits(get(&mut host, fid, 0, select::CAPABILITIES).unwrap());
        let expected = (false, true, fid == fid::ERROR_RECOVERY);
        assert_eq!(
            (capabilities.saveable(), capabilities.changeable(), capabilities.namespace_specific()),
            expected,
            "{fid:#x}"
        );
        assert_eq!(get(&mut host, fid, 0, 4), Err(Status::INVALID_FIELD), "reserved SEL");
    }
}

#[test]
fn controller_features_refuse_a_namespace() {
    let mut host = host();
    for fid in [fid::POWER_MANAGEMENT, fid::TEMPERATURE_THRESHOLD, fid::WRITE_ATOMICITY] {
        let of_one = SetFeatures { nsid: Nsid(1), ..SetFeatures::new(fid, 0_u32) };
        assert_eq!(
            kind(&mut host, of_one.to_sqe()),
            Status::FEATURE_NOT_NAMESPACE_SPECIFIC,
            "{fid:#x}"
        );
    }
}

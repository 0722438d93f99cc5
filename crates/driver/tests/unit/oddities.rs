//! Controllers of versions 1.0 to 2.1 with one or two deviations: each comes up and reads what was
//! written, or fails within bounded time with an error that names the cause.

use std::collections::BTreeMap;

use nvme::identify::{DescriptorList, LbaFormat, NamespaceList};
use nvme::opcode::{admin, io};
use nvme::regs::Cap;
use nvme::{Nsid, Sqe, Status, Text};

use super::*;
use crate::testing::controller::{Controller, Script, namespace};
use crate::testing::host::Host;

type Odd = (String, Box<dyn Fn(&mut Script)>);

fn odd(name: impl Into<String>, change: impl Fn(&mut Script) + 'static) -> Odd {
    (name.into(), Box::new(change))
}

/// Commands of bring-up: opcode, and CNS or FID.
const COMMANDS: [(u8, u8); 12] = [
    (admin::IDENTIFY, 0),
    (admin::IDENTIFY, 1),
    (admin::IDENTIFY, 2),
    (admin::IDENTIFY, 3),
    (admin::IDENTIFY, 5),
    (admin::IDENTIFY, 6),
    (admin::SET_FEATURES, 0x07),
    (admin::SET_FEATURES, 0x0b),
    (admin::SET_FEATURES, 0x0f),
    (admin::DOORBELL_BUFFER_CONFIG, 0),
    (admin::CREATE_CQ, 0),
    (admin::CREATE_SQ, 0),
];

fn version(major: u16, minor: u8) -> Version {
    Version::new().with_major(major).with_minor(minor)
}

fn oddities() -> Vec<Odd> {
    let mut all: Vec<Odd> = [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0), (9, 9)]
        .map(|(major, minor)| {
            odd(format!("version {major}.{minor}"), move |script| {
                script.version = version(major, minor)
            })
        })
        .into();
    for key in COMMANDS {
        for (said, status) in [
            ("invalid field", Status::INVALID_FIELD),
            ("invalid opcode", Status::INVALID_OPCODE.with_dnr()),
        ] {
            all.push(odd(format!("{key:x?} {said}"), move |script| {
                _ = script.refuse.insert(key, status)
            }));
        }
        all.push(odd(format!("{key:x?} silent"), move |script| script.silent.push(key)));
        all.push(odd(format!("{key:x?} astray"), move |script| script.astray.push(key)));
    }
    all.extend(
        [0, 1, 2, 0xffff]
            .map(|mqes| odd(format!("MQES {mqes}"), move |script| script.cap.set_mqes(mqes))),
    );
    all.extend([0, 0xff].map(|to| odd(format!("TO {to}"), move |script| script.cap.set_to(to))));
    let sets = [0, Cap::CSS_ALL, Cap::CSS_ADMIN_ONLY];
    all.extend(sets.map(|css| odd(format!("CSS {css:#x}"), move |script| script.cap.set_css(css))));
    all.extend(
        [0, 1, 0xff]
            .map(|mdts| odd(format!("MDTS {mdts}"), move |script| script.identify.mdts = mdts)),
    );
    all.extend([0, 0xff].map(|acl| {
        odd(format!("ACL, AERL {acl}"), move |script| {
            (script.identify.acl, script.identify.aerl) = (acl, acl)
        })
    }));
    all.extend(
        [0, 1, 3, u32::MAX]
            .map(|nn| odd(format!("NN {nn}"), move |script| script.identify.nn = nn)),
    );
    all.extend(
        [0, 0x44, 0x77, 0xff]
            .map(|size| odd(format!("SQES {size:#x}"), move |script| script.identify.sqes = size)),
    );
    all.extend([0, 2, 3, 0xff].map(|kind| {
        odd(format!("CNTRLTYPE {kind}"), move |script| script.identify.cntrltype = kind)
    }));
    all.extend(
        [0, 1].map(|queues| odd(format!("{queues} queues"), move |script| script.queues = queues)),
    );
    all.extend([0, 7, 31, 63, 255].map(|lbads| {
        odd(format!("LBADS {lbads}"), move |script| {
            script.namespaces[0].1.lbaf[0] = LbaFormat::new().with_lbads(lbads)
        })
    }));
    all.extend([0, 1, u64::MAX].map(|blocks| {
        odd(format!("NSZE {blocks}"), move |script| script.namespaces[0].1.nsze = blocks)
    }));
    all.extend([1, 3, 0xffff].map(|noiob| {
        odd(format!("NOIOB {noiob}"), move |script| script.namespaces[0].1.noiob = noiob)
    }));
    for (name, list) in [
        ("twice", vec![1, 1]),
        ("descending", vec![3, 1]),
        ("all ones", vec![1, u32::MAX]),
        ("empty", vec![]),
    ] {
        let list = NamespaceList::of(list.into_iter().map(Nsid));
        all.push(odd(format!("list {name}"), move |script| script.list = Some(list.clone())));
    }
    all.push(odd("metadata", |script| script.namespaces[0].1.lbaf[0].set_ms(8)));
    all.push(odd("format index", |script| script.namespaces[0].1.flbas = 0xff));
    all.push(odd("protection", |script| script.namespaces[0].1.dps = 7));
    all.push(odd("4 KiB pages not among its own", |script| {
        script.cap = script.cap.with_mpsmin(1).with_mpsmax(4)
    }));
    all.push(odd("no namespace", |script| script.namespaces.clear()));
    all.push(odd("zeroes of inactive namespaces", |script| script.inactive_is_zeroes = true));
    all.push(odd("many namespaces", |script| {
        script.namespaces =
            (1..=40).map(|n| (Nsid(n), namespace(64, 9), DescriptorList::default())).collect();
    }));
    all.push(odd("MAXCMD 1", |script| script.identify.maxcmd = 1));
    all.push(odd("everything optional", |script| {
        (script.identify.oncs, script.identify.oaes, script.identify.kas) =
            (u16::MAX, u32::MAX, u16::MAX);
        script.identify.oacs = u16::MAX;
    }));
    all.push(odd("nothing optional", |script| {
        (script.identify.oncs, script.identify.oaes, script.identify.lpa) = (0, 0, 0)
    }));
    all.push(odd("odd names", |script| {
        (script.identify.mn, script.identify.sn) = (Text::ascii(""), Text::ascii("\u{7f}\0x"))
    }));
    all.push(odd("never ready", |script| script.ready_after = Nanos::MAX));
    all.push(odd("ready late", |script| script.ready_after = Nanos::from_millis(400)));
    all.push(odd("answers late", |script| script.thinks = Nanos::from_millis(400)));
    all
}

/// Writes and reads one block of every namespace on its first queue.
fn read_after_write(host: &mut Host, inventory: &Inventory) -> Result<(), String> {
    let Some(layout) = inventory.queues.first() else { return Ok(()) };
    for ns in &inventory.namespaces {
        let (from, to) = (host.controller.memory.page(), host.controller.memory.page());
        let data = vec![ns.nsid.0 as u8 | 0x80; 512];
        host.controller.memory.write(from, &data);
        for (opcode, prp1) in [(io::WRITE, from), (io::READ, to)] {
            let sqe = Sqe {
                opcode,
                nsid: ns.nsid.0,
                prp1,
                cdw10: (ns.blocks - 1) as u32,
                ..Sqe::default()
            };
            let mut sq = host.io[&layout.id].lock_sq();
            sq.post(sqe, u64::from(opcode), host.now).map_err(|error| error.to_string())?;
            sq.commit(&host.controller.doorbells);
            drop(sq);
            host.controller.step(host.now);
            host.reap();
        }
        if host.controller.memory.read(to) != data {
            return Err(format!("namespace {}: something else was read than was written", ns.nsid));
        }
    }
    Ok(())
}

/// Result of bring-up with these deviations: the name of the cause if it fails.
fn outcome(name: &str, changes: &[&Odd]) -> Result<(), String> {
    let mut script = Script::default();
    (script.identify.kas, script.identify.oacs) =
        (1, nvme::identify::Controller::OACS_DOORBELL_BUFFERS);
    changes.iter().for_each(|(_, change)| change(&mut script));
    let has = |major, minor| script.version >= version(major, minor);
    let (list, descriptors, command_set) = (has(1, 1), has(1, 3), has(2, 0));
    let (mut host, config) = Host::new(Controller::new(script));
    let doorbells = Some((host.controller.memory.page(), host.controller.memory.page()));
    let result =
        host.bring_up(BringupConfig { keep_alive: Nanos::from_secs(5), doorbells, ..config });
    assert!(host.now <= Nanos::from_secs(100 + 63 + 128), "{name}: it took until {}", host.now);
    for &(opcode, cns) in host.controller.asked.iter().filter(|asked| asked.0 == admin::IDENTIFY) {
        let known = match cns {
            2 => list,
            3 => descriptors,
            5 | 6 => command_set,
            _ => true,
        };
        assert!(known, "{name}: {opcode:02x}h with CNS {cns:02x}h is newer than the controller");
    }
    match result {
        Ok(inventory) => {
            read_after_write(&mut host, &inventory)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            Ok(())
        }
        Err(error) => {
            let cause = format!("{:?}", error.cause);
            Err(cause.split([' ', '(']).next().unwrap_or_default().to_owned())
        }
    }
}

#[test]
fn odd_controllers_have_named_outcomes() {
    let all = oddities();
    let alone: Vec<_> = all.iter().map(|one| outcome(&one.0, &[one])).collect();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (n, one) in all.iter().enumerate() {
        for (m, other) in all.iter().enumerate().skip(n + 1) {
            let name = format!("{} and {}", one.0, other.0);
            if let Err(cause) = outcome(&name, &[one, other]) {
                let known =
                    [&alone[n], &alone[m]].into_iter().any(|single| single.as_ref() == Err(&cause));
                // NN counts only where there is no list.
                assert!(
                    known || cause == "TooManyNamespaces",
                    "{name}: {cause}, and alone {:?}, {:?}",
                    alone[n],
                    alone[m]
                );
                *seen.entry(cause).or_default() += 1;
            }
        }
    }
    let causes: Vec<_> = seen.keys().map(String::as_str).collect();
    let expected = [
        "BadNamespaceList",
        "NoReply",
        "NotReady",
        "Rejected",
        "TooManyNamespaces",
        "Unusable",
        "Violation",
    ];
    assert_eq!(causes, expected, "{seen:?}");
    // Optional features.
    let comes_up =
        |name: &str| all.iter().zip(&alone).any(|(one, outcome)| one.0 == name && outcome.is_ok());
    for name in [
        "version 0.0",
        "version 1.0",
        "CSS 0x0",
        "TO 0",
        "MDTS 0",
        "NN 0",
        "(6, 2) invalid field",
        "(9, b) invalid opcode",
        "MQES 1",
    ] {
        assert!(comes_up(name), "{name}");
    }
}

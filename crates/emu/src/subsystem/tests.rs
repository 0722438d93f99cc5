use nvme::admin::{AsyncEvent, GetLogPage, Identify, SetFeatures, cns, event_type, notice};
use nvme::features::{AsyncEventConfig, fid};
use nvme::identify::{
    Controller as ControllerPage, DescriptorList, IdentifyNamespace as NamespacePage,
    NamespaceList, descriptor,
};
use nvme::log::ana::{AnaLog, GROUPS_ONLY};
use nvme::log::lid;
use nvme::{AnaState, Cqe, Page, Sqe, Status};
use units::Nanos;

use super::*;
use crate::testing::{Host, Pair, TestPort, mem, read, short, write};
use crate::{Identifiers, Profile, Service};

mod ana;
mod touch;

const NQN: &str = "nqn.2026-11.test:shelf";
const MS: Nanos = Nanos::from_millis(1);

/// 100 µs for every command.
fn profile() -> Profile {
    let fixed = Service { base: Nanos::from_micros(100), ..Service::default() };
    Profile { read: fixed, write: fixed, flush: fixed, moves_data: true, ..Profile::null() }
}

fn config(id: u16) -> Config {
    Config { controller_id: id, ana: Some(Ana::new(AnaState::OPTIMIZED)), ..Config::new(profile()) }
}

/// A host for each controller, enabled and with an I/O queue pair.
type Hosts = Vec<(Host<TestPort>, Pair)>;

fn hosts_of(subsystem: &mut Subsystem, configs: Vec<Config>) -> Hosts {
    let host = |config| {
        let port = TestPort::new(4 << 20);
        let mut host =
            Host::of(port, |port| subsystem.controller(config, vec![], port).unwrap()).ready();
        let pair = host.pair(1, 16);
        (host, pair)
    };
    configs.into_iter().map(host).collect()
}

/// Two controllers that share a namespace of 1 MiB.
fn two() -> (Subsystem, Hosts) {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    subsystem.share(mem(1 << 20, 512)).unwrap();
    let hosts = hosts_of(&mut subsystem, vec![config(1), config(2)]);
    (subsystem, hosts)
}

impl Host<TestPort> {
    fn send(&mut self, pair: &mut Pair, sqe: Sqe) {
        let cid = self.cid();
        self.post(pair, sqe, cid);
        self.ring(pair);
        self.settle();
    }

    /// An I/O command with a timeout of a millisecond; `None`: it has not completed.
    fn io(&mut self, pair: &mut Pair, sqe: Sqe) -> Option<Status> {
        self.send(pair, sqe);
        self.run_until(self.now + MS);
        self.reap(pair, 9).first().map(Cqe::status)
    }

    fn fill(&mut self, byte: u8) -> u64 {
        let at = self.page(1);
        self.port.memory.write(at, &[byte; 512]).unwrap();
        at
    }

    fn identify<T: Page>(&mut self, cns: u8, nsid: u32) -> T {
        let at = self.page(1);
        assert_eq!(
            self.admin(Identify::new(cns, Nsid(nsid), short(at, 4096)).to_sqe()).status(),
            Status::SUCCESS
        );
        T::from_page(&self.port.memory.bytes(at, 4096)).unwrap()
    }

    fn ana_log(&mut self, lsp: u8) -> AnaLog {
        let at = self.page(1);
        let command = GetLogPage { lsp, ..GetLogPage::new(lid::ANA, 4096, short(at, 4096)) };
        assert_eq!(self.admin(command.to_sqe()).status(), Status::SUCCESS);
        AnaLog::from_bytes(&self.port.memory.bytes(at, 4096)).unwrap()
    }
}

#[test]
fn controllers_share_their_data() {
    let (_, mut hosts) = two();
    let [(a, on_a), (b, on_b)] = &mut hosts[..] else { panic!() };
    let from = a.fill(7);
    assert_eq!(a.io(on_a, write(3, 1, from, 512)), Some(Status::SUCCESS));
    let to = b.fill(0);
    assert_eq!(b.io(on_b, read(3, 1, to, 512)), Some(Status::SUCCESS));
    assert_eq!(b.port.memory.bytes(to, 512), [7; 512]);
}

/// Other media than memory use the controllers' bounce buffers; a cache is shared by all
/// controllers.
#[test]
fn any_medium_is_shared() {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    let medium = std::sync::Arc::new(std::sync::Mutex::new(crate::media::WriteCache::new(
        crate::Mem::new(1 << 20, crate::Budget::new(1 << 22)),
        512,
        64,
    )));
    subsystem.share(NamespaceConfig::new(medium.clone(), 512).unwrap()).unwrap();
    let mut hosts = hosts_of(&mut subsystem, vec![config(1), config(2)]);
    let [(a, on_a), (b, on_b)] = &mut hosts[..] else { panic!() };
    let from = a.fill(9);
    assert_eq!(a.io(on_a, write(3, 1, from, 512)), Some(Status::SUCCESS));
    let to = b.fill(0);
    assert_eq!(b.io(on_b, read(3, 1, to, 512)), Some(Status::SUCCESS));
    assert_eq!(
        (b.port.memory.bytes(to, 512), medium.lock().unwrap().dirty_blocks()),
        (vec![9; 512], 1)
    );
    assert_eq!(b.io(on_b, nvme::io::flush(Nsid(1))), Some(Status::SUCCESS));
    assert_eq!(medium.lock().unwrap().dirty_blocks(), 0);
    assert!(b.identify::<ControllerPage>(cns::CONTROLLER, 0).vwc.present());
}

#[test]
fn controllers_identify_what_they_share() {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    let nguid = Identifiers { nguid: [5; 16], ..Identifiers::default() };
    subsystem.share(mem(1 << 20, 512)).unwrap();
    subsystem.share(mem(1 << 20, 512).with_identifiers(nguid).with_ana_group(3)).unwrap();
    let mut hosts = hosts_of(
        &mut subsystem,
        vec![config(4), Config { quiesce_time: Nanos(1_500_001), ..config(9) }],
    );
    let pages: Vec<ControllerPage> =
        hosts.iter_mut().map(|(host, _)| host.identify(cns::CONTROLLER, 0)).collect();
    for (page, id) in pages.iter().zip([4, 9]) {
        assert_eq!((page.subnqn.to_string(), page.cntlid), (NQN.into(), id));
        assert!(page.cmic.controllers() && page.cmic.ports() && page.cmic.ana());
        assert_eq!(
            (page.anatt, page.anacap & 0x1f, page.anagrpmax, page.nanagrpid),
            (10, 0x1f, 3, 2)
        );
        assert!(AsyncEventConfig::from_bits(page.oaes).ana_change());
    }
    assert_eq!([pages[0].cqt, pages[1].cqt], [0, 2], "milliseconds, rounded up");
    let named = |host: &mut Host<TestPort>, nsid| {
        let page: NamespacePage = host.identify(cns::NAMESPACE, nsid);
        let list: DescriptorList = host.identify(cns::NAMESPACE_DESCRIPTORS, nsid);
        assert_eq!(
            list.find(descriptor::NGUID).unwrap_or(&[0; 16]),
            page.nguid,
            "both structures say the same"
        );
        (
            page.nmic,
            page.anagrpid,
            page.nguid,
            page.nsze,
            list.find(descriptor::UUID).map(<[u8]>::to_vec),
        )
    };
    for nsid in [1, 2] {
        let first = named(&mut hosts[0].0, nsid);
        assert_eq!(first, named(&mut hosts[1].0, nsid));
        assert_eq!(first.0, NamespacePage::NMIC_SHARED);
    }
    let uuid = named(&mut hosts[0].0, 1).4.expect("made of the subsystem's name");
    assert!(uuid.iter().any(|&b| b != 0));
    assert_eq!(named(&mut hosts[0].0, 2), (NamespacePage::NMIC_SHARED, 3, [5; 16], 2048, None));
}

#[test]
fn private_namespaces_are_one_controllers_own() {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    assert_eq!(subsystem.share(mem(1 << 20, 512).with_nsid(Nsid(5))), Ok(Nsid(5)));
    let mut host = |id, private| {
        Host::of(TestPort::new(1 << 20), |port| {
            subsystem.controller(config(id), private, port).unwrap()
        })
        .ready()
    };
    let mut first = host(1, vec![mem(1 << 16, 512).with_nsid(Nsid(2)), mem(1 << 16, 512)]);
    let mut second = host(2, vec![mem(1 << 16, 4096)]);
    let list = |host: &mut Host<TestPort>, after| {
        host.identify::<NamespaceList>(cns::ACTIVE_NAMESPACES, after)
            .iter()
            .map(|nsid| nsid.0)
            .collect::<Vec<_>>()
    };
    assert_eq!((list(&mut first, 0), list(&mut first, 2)), (vec![2, 5, 6], vec![5, 6]));
    assert_eq!(list(&mut second, 0), [5, 7], "identifiers are used once in a subsystem");
    assert_eq!(first.identify::<NamespacePage>(cns::NAMESPACE, 2).nmic, 0);
    assert_eq!(second.identify::<NamespacePage>(cns::NAMESPACE, 6).nsze, 0, "inactive there");
}

#[test]
fn faults_and_profile_are_per_controller() {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    subsystem.share(mem(1 << 20, 512)).unwrap();
    let plan = crate::FaultPlan::new()
        .with_chance(1_000_000, crate::Fault::Status(Status::INTERNAL_PATH_ERROR));
    let faults = Some(crate::FaultInjector::new(plan));
    let faulty = |port| subsystem.controller(Config { faults, ..config(1) }, vec![], port).unwrap();
    let mut a = Host::of(TestPort::new(1 << 20), faulty).ready();
    let mut on_a = a.pair(1, 16);
    let at = a.page(1);
    let cid = a.cid();
    a.post(&mut on_a, read(0, 1, at, 512), cid);
    a.ring(&on_a);
    a.run_until(a.now + MS);
    assert_eq!(a.reap(&mut on_a, 9)[0].status().kind(), Status::INTERNAL_PATH_ERROR);
    let mut slow = config(2);
    slow.profile.read.base = Nanos::from_micros(900);
    let (b, on_b) = &mut hosts_of(&mut subsystem, vec![slow])[0];
    let at = b.fill(1);
    b.send(on_b, read(0, 1, at, 512));
    assert_eq!(b.settle().next, Some(b.now + Nanos::from_micros(900)));
    b.run_until(b.now + MS);
    assert_eq!(b.reap(on_b, 9)[0].status(), Status::SUCCESS);
}

#[test]
fn impossible_subsystems_are_refused() {
    for bad in ["", "iqn.2026-11.test:a", &format!("nqn.{}", "x".repeat(220))] {
        assert_eq!(Subsystem::new(bad).unwrap_err(), SubsystemError::Nqn(bad.into()));
    }
    let mut subsystem = Subsystem::new(NQN).unwrap();
    subsystem.share(mem(1 << 16, 512)).unwrap();
    for taken in [0, 1, 1025] {
        let refused = subsystem.share(mem(1 << 16, 512).with_nsid(Nsid(taken)));
        assert_eq!(refused, Err(SubsystemError::Nsid(Nsid(taken))));
    }
    let mut make = |id| subsystem.controller(config(id), vec![], TestPort::new(1 << 16)).map(drop);
    assert_eq!(
        [make(1), make(1), make(0xfff0)],
        [Ok(()), Err(SubsystemError::ControllerId(1)), Err(SubsystemError::ControllerId(0xfff0))]
    );
    assert_eq!(subsystem.next_controller_id(), 2);
}

/// A controller outside a subsystem reports neither ANA nor sharing.
#[test]
fn a_controller_alone_shares_nothing() {
    let mut host = Host::new(Config::new(profile()), vec![mem(1 << 20, 512)]).ready();
    let page: ControllerPage = host.identify(cns::CONTROLLER, 0);
    assert_eq!((page.cmic.into_bits(), page.cntlid, page.anacap, page.anatt), (0, 1, 0, 0));
    assert!(!AsyncEventConfig::from_bits(page.oaes).ana_change());
    let namespace: NamespacePage = host.identify(cns::NAMESPACE, 1);
    assert_eq!((namespace.nmic, namespace.anagrpid), (0, 0));
    let at = host.page(1);
    let refused =
        host.admin(GetLogPage::new(lid::ANA, 512, short(at, 512)).to_sqe()).status().kind();
    assert_eq!(refused, Status::INVALID_LOG_PAGE);
}

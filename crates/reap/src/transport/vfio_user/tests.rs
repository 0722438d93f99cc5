//! The client against a scripted server, up to the point where the controller would come up: what
//! the server lacks or misreports is an error or a note.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;

use ::vfio_user::{
    Capabilities, Command, Flags, Header, Received, RegionAccess, Reply, Request, SetIrqs, Socket,
    Version, region,
};
use driver::{AccessPoll, Properties, Property};
use nvme::regs::Cap;
use nvme::{Doorbells, QueueId, Vector};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::handshake::MSIX;
use super::*;

/// What the server server of itself.
struct TestServer {
    /// Class code and revision.
    class: u32,
    /// The chain of capabilities: identifier, then where the next one is.
    chain: [(u8, u8); 2],
    vectors: u32,
    bar0: u64,
    /// Whether the doorbells' page can be mapped, and the descriptors that come with that.
    mappable: bool,
    files: Vec<OwnedFd>,
    /// What it refuses.
    refuses: Option<Command>,
    /// It refuses to move a vector once all have been set.
    moves_none: bool,
    /// CAP.DSTRD.
    stride: u8,
    /// Memory that it was given: address and bytes.
    mapped: Arc<Mutex<Vec<(u64, u64)>>>,
    /// Vectors that were set at a time: the first, and how many.
    vectors_set: Arc<Mutex<Vec<(u32, u32)>>>,
}

impl Default for TestServer {
    fn default() -> TestServer {
        let chain = [(0x01, 0x50), (MSIX, 0)];
        TestServer {
            class: 0x0108_0201,
            chain,
            vectors: 8,
            bar0: 0x2000,
            mappable: false,
            files: Vec::new(),
            refuses: None,
            moves_none: false,
            stride: 0,
            mapped: Arc::default(),
            vectors_set: Arc::default(),
        }
    }
}

/// What was written: region, offset, bytes.
type Writes = Arc<Mutex<Vec<(u32, u64, Vec<u8>)>>>;

impl TestServer {
    /// Bytes of the configuration space from `offset` on.
    fn config(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut space = vec![0; 256];
        space[8..12].copy_from_slice(&self.class.to_le_bytes());
        space[0x34] = 0x40;
        for (at, (id, next)) in [0x40, 0x50].into_iter().zip(self.chain) {
            (space[at], space[at + 1]) = (id, next);
        }
        space[offset as usize..][..len].to_vec()
    }

    fn bar0(&self, access: &RegionAccess) -> Vec<u8> {
        let cap = Cap::new().with_mqes(31).with_dstrd(self.stride).into_bits().to_le_bytes();
        cap.get(access.offset as usize..)
            .unwrap_or_default()
            .iter()
            .copied()
            .chain([0; 8])
            .take(access.count as usize)
            .collect()
    }

    /// GET_REGION_INFO's answer about BAR0.
    fn region(&self) -> Vec<u8> {
        let mut words = vec![if self.mappable { 7 | 8 } else { 3 }, 0, 32];
        words.insert(0, if self.mappable { 64u32 } else { 32 });
        let mut body: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        body.extend([self.bar0, 0x1000].into_iter().flat_map(u64::to_ne_bytes));
        if self.mappable {
            body.extend([1 | 1 << 16, 0, 1, 0].into_iter().flat_map(u32::to_ne_bytes));
            body.extend([0x1000u64, 0x1000].into_iter().flat_map(u64::to_ne_bytes));
        }
        body
    }

    fn answer(&self, socket: &mut Socket, header: &Header, body: &[u8], written: &Writes) {
        let Some(command) = Command::from_number(header.command) else { return };
        let request = Request::from_bytes(command, body).expect("a request");
        let moves = matches!(request, Request::SetIrqs(SetIrqs { count: 1, .. }));
        if self.refuses == Some(command) || moves && self.moves_none {
            return socket
                .send(&Reply::Error(rustix::io::Errno::PERM).to_bytes(header), &[])
                .expect("sent");
        }
        let data;
        let reply = match request {
            Request::Version(_) => Reply::Version(Version {
                major: 0,
                minor: 1,
                capabilities: Capabilities { max_msg_fds: 8, ..Capabilities::default() },
            }),
            Request::DeviceInfo => Reply::DeviceInfo(::vfio_user::DeviceInfo {
                can_reset: true,
                is_pci: true,
                regions: 9,
                irqs: 5,
            }),
            Request::IrqInfo { index } => Reply::IrqInfo(
                index,
                ::vfio_user::Interrupts { by_eventfd: true, count: self.vectors },
            ),
            Request::RegionInfo { .. } => {
                let bytes = Header { flags: Flags::REPLY, ..*header }.with_body(&self.region());
                let fds: Vec<_> = self.files.iter().map(AsFd::as_fd).collect();
                let sent = socket.send(&bytes, &fds);
                return sent.expect("sent");
            }
            Request::RegionRead(access) => {
                data = if access.region == region::CONFIG {
                    self.config(access.offset, access.count as usize)
                } else {
                    self.bar0(&access)
                };
                Reply::RegionRead(access, &data)
            }
            Request::DmaMap(map) => {
                self.mapped.lock().expect("no panic").push((map.address, map.size));
                Reply::Done
            }
            Request::DmaUnmap(unmap) => {
                self.mapped
                    .lock()
                    .expect("no panic")
                    .retain(|(address, _)| *address != unmap.address);
                Reply::Done
            }
            Request::SetIrqs(set) => {
                self.vectors_set.lock().expect("no panic").push((set.start, set.count));
                Reply::Done
            }
            Request::RegionWrite(access, data) => {
                written.lock().expect("no panic").push((
                    access.region,
                    access.offset,
                    data.to_vec(),
                ));
                Reply::RegionWrite(access)
            }
            _ => Reply::Done,
        };
        if header.flags.wants_reply() {
            _ = socket.send(&reply.to_bytes(header), &[]);
        }
    }

    /// Serves clients in a thread, which ends with the process.
    fn serve(self) -> (VfioUserUri, Writes, tempfile::TempDir) {
        serve_each_once(vec![self])
    }

    fn open(self) -> (Result<RingController, OpenError>, Writes) {
        let (uri, written, _dir) = self.serve();
        (open(&uri, &options()), written)
    }

    /// Why it is not opened.
    fn fault(self) -> VfioUserError {
        match self.open().0 {
            Err(OpenError::VfioUser { fault, .. }) => fault,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it was opened"),
        }
    }
}

/// What is written to CC to have a server go.
const GO: u32 = 0xdead;

/// Serves one client each, in a thread, which ends with the process; the last of them all that
/// follow.
fn serve_each_once(mut servers: Vec<TestServer>) -> (VfioUserUri, Writes, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let (listener, written) = (UnixListener::bind(&path).expect("a socket"), Writes::default());
    let heard = written.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut socket = Socket::new(stream.expect("a client"), 1 << 20).expect("a socket");
            let server = &servers[0];
            let goes = (0, 0x14, GO.to_le_bytes().to_vec());
            while heard.lock().expect("no panic").last() != Some(&goes) {
                match socket.receive() {
                    Ok(Received::Message(message)) => {
                        server.answer(&mut socket, &message.header, &message.body, &heard)
                    }
                    Ok(Received::Nothing) => thread::yield_now(),
                    _ => break,
                }
            }
            heard.lock().expect("no panic").retain(|written| *written != goes);
            drop(socket);
            if servers.len() > 1 {
                servers.remove(0);
            }
        }
    });
    (format!("vfio-user:{}", path.display()).parse().expect("a URI"), written, dir)
}

fn options() -> OpenOptions {
    OpenOptions::new().software_queues(2).hardware_queues(2).pool_bytes(8 << 20)
}

fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file =
        memfd_create("bar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    ftruncate(&file, bytes).expect("its size");
    fcntl_add_seals(&file, seals).expect("sealed");
    file
}

#[test]
fn bus_mastering_and_msix_are_enabled() {
    let (controller, written) = TestServer::default().open();
    let controller = controller.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(*written.lock().unwrap(), [(7, 4, vec![0x06, 0x04]), (7, 0x52, vec![0, 0x80])]);
    assert!(controller.notes().is_empty(), "{:?}", controller.notes());
    // A doorbell is a message without a reply.
    controller.doorbells().ring_sq(QueueId(1), 5);
    while written.lock().unwrap().len() < 3 {
        thread::yield_now();
    }
    assert_eq!(written.lock().unwrap()[2], (0, 0x1008, vec![5, 0, 0, 0]));
}

/// A reset takes bus mastering and MSI-X away.
#[test]
fn function_works_after_reset() {
    let controller = TestServer::default().open();
    let (controller, written) =
        (controller.0.unwrap_or_else(|error| panic!("{error}")), controller.1);
    assert!(controller.properties().reset_function());
    let on = [(7, 4, vec![0x06, 0x04]), (7, 0x52, vec![0, 0x80])];
    assert_eq!(*written.lock().unwrap(), [on.clone(), on].concat());
    // A server that refuses has not reset it.
    let (controller, _) =
        TestServer { refuses: Some(Command::DeviceReset), ..TestServer::default() }.open();
    assert!(!controller.unwrap_or_else(|error| panic!("{error}")).properties().reset_function());
}

/// A server's configuration space outlives its clients: the next one may give no eventfds for
/// messages.
#[test]
fn closing_disables_msix() {
    let (controller, written) = TestServer::default().open();
    drop(controller.unwrap_or_else(|error| panic!("{error}")));
    while written.lock().unwrap().len() < 3 {
        thread::yield_now();
    }
    assert_eq!(written.lock().unwrap()[2..], [(7, 0x52, vec![0, 0])]);
    // One that was never opened so far has none to switch off.
    let (refused, written) = TestServer { chain: [(1, 0), (0, 0)], ..TestServer::default() }.open();
    assert!(refused.is_err());
    assert_eq!(written.lock().unwrap().len(), 1);
}

/// Shadow doorbells are used where a doorbell is a message, not where it is a store, unless the URI
/// says otherwise.
#[test]
fn shadow_doorbells_replace_messages() {
    for (mappable, said, kept) in [
        (false, None, true),
        (true, None, false),
        (false, Some(false), false),
        (true, Some(true), true),
    ] {
        let files = if mappable { vec![file(0x3000, SealFlags::SHRINK)] } else { Vec::new() };
        let (uri, written, _dir) = TestServer { mappable, files, ..TestServer::default() }.serve();
        let uri = VfioUserUri { shadow: said, ..uri };
        let controller = open(&uri, &OpenOptions::new().software_queues(1).pool_bytes(8 << 20))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(controller.doorbell_pages().is_some(), kept, "mappable {mappable}, {said:?}");
        // Registers are written until Doorbell Buffer Config has been sent.
        assert_eq!(controller.doorbells_rung(), None);
        let before = written.lock().unwrap().len();
        controller.doorbells().ring_sq(QueueId(1), 5);
        while !mappable && written.lock().unwrap().len() == before {
            thread::yield_now();
        }
        // EventIdx is 0 still, which is not passed again.
        controller.keep_doorbells(true);
        controller.doorbells().ring_sq(QueueId(1), 1);
        controller.doorbells().ring_sq(QueueId(1), 2);
        assert_eq!(controller.doorbells_rung(), kept.then_some(1));
        controller.forget_doorbells();
        controller.keep_doorbells(true);
        controller.doorbells().ring_sq(QueueId(1), 1);
        assert_eq!(controller.doorbells_rung(), kept.then_some(2), "they begin at 0 again");
    }
}

#[test]
fn mapped_doorbells_are_stores() {
    let doorbells = file(0x3000, SealFlags::SHRINK);
    let (controller, written) = TestServer {
        mappable: true,
        files: vec![doorbells.try_clone().unwrap()],
        ..TestServer::default()
    }
    .open();
    let controller = controller.unwrap_or_else(|error| panic!("{error}"));
    controller.doorbells().ring_cq(QueueId(1), 9);
    let mut word = [0; 4];
    // The region begins at 1000h of the file, and the page at 1000h of the region.
    rustix::io::pread(&doorbells, &mut word, 0x2000 + 12).unwrap();
    assert_eq!((u32::from_le_bytes(word), written.lock().unwrap().len()), (9, 2));
}

/// A part that is not what the server server is reached by messages, and a note server why.
#[test]
fn false_bar_areas_are_ignored() {
    let lies = [
        (Vec::new(), "sends no descriptor"),
        (vec![file(0x2000, SealFlags::SHRINK)], "has 0x2000 bytes"),
        (vec![file(0x3000, SealFlags::empty())], "F_SEAL_SHRINK"),
    ];
    for (files, why) in lies {
        let (controller, written) =
            TestServer { mappable: true, files, ..TestServer::default() }.open();
        let controller = controller.unwrap_or_else(|error| panic!("{error}"));
        assert!(
            controller.notes().len() == 1 && controller.notes()[0].contains(why),
            "{:?}",
            controller.notes()
        );
        controller.doorbells().ring_sq(QueueId(1), 5);
        while written.lock().unwrap().len() < 3 {
            thread::yield_now();
        }
    }
}

#[test]
fn unusable_servers_are_refused() {
    assert!(
        TestServer { class: 0x0200_0001, ..TestServer::default() }
            .fault()
            .to_string()
            .contains("its class is 020000h")
    );
    let lacks = |server: TestServer| match server.fault() {
        VfioUserError::Unsupported(what) => what,
        other => panic!("{other}"),
    };
    assert!(lacks(TestServer { vectors: 0, ..TestServer::default() }).contains("no MSI-X vectors"));
    assert!(
        lacks(TestServer { bar0: 0x1000, ..TestServer::default() }).contains("BAR0 has 4096 bytes")
    );
    assert!(
        lacks(TestServer { chain: [(1, 0), (0, 0)], ..TestServer::default() })
            .contains("no MSI-X capability")
    );
    // A chain in a circle has an end.
    assert!(
        lacks(TestServer { chain: [(1, 0x50), (5, 0x40)], ..TestServer::default() })
            .contains("no MSI-X capability")
    );
    for refused in [
        Command::Version,
        Command::DeviceGetInfo,
        Command::DeviceGetRegionInfo,
        Command::DeviceSetIrqs,
        Command::RegionRead,
    ] {
        let fault = TestServer { refuses: Some(refused), ..TestServer::default() }.fault();
        let said = fault.to_string();
        assert!(
            matches!(fault, VfioUserError::Server { .. }) && said.contains(&refused.to_string()),
            "{said}"
        );
    }
    // Its own words for memory.
    let (refused, _) =
        TestServer { refuses: Some(Command::DmaMap), ..TestServer::default() }.open();
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("DMA_MAP") && said.contains("Operation not permitted"), "{said}");
    // A reset that it does not know is done without.
    let (controller, _) =
        TestServer { refuses: Some(Command::DeviceReset), ..TestServer::default() }.open();
    assert!(controller.is_ok_and(|controller| controller.notes()[0].contains("DEVICE_RESET")));
}

/// Waits for the next event.
fn next_event(controller: &RingController) -> ServerEvent {
    loop {
        match controller.news() {
            Some(news) => return news,
            None => thread::yield_now(),
        }
    }
}

/// The server exits; the driver notices and starts to reconnect.
fn lose_server(controller: &RingController) {
    let asked = controller.properties().ask(driver::Access::Set(Property::Cc, GO.into()));
    let ServerEvent::Ended(why) = next_event(controller) else { panic!("it is not over") };
    assert!(why.contains("the server has closed the connection"), "{why}");
    // Whatever was asked is answered.
    if let AccessPoll::Pending(ticket) = asked {
        assert_eq!(controller.properties().answers(hw::now()), [(ticket, Ok(0))]);
    }
    assert_eq!(
        controller.properties().ask(driver::Access::Get(Property::Csts)),
        AccessPoll::Ready(Ok(u32::MAX.into()))
    );
    controller.start_reconnect(Nanos::ZERO, None);
}

/// Servers that take the place of one that went: those that differ are not taken, and it is said
/// why.
#[test]
fn changed_servers_fail_reconnects() {
    let sealed = || file(0x3000, SealFlags::SHRINK);
    let server = || TestServer { mappable: true, files: vec![sealed()], ..TestServer::default() };
    let lies = [
        (TestServer { class: 0x0200_0001, ..server() }, "serves no NVMe controller"),
        (TestServer { bar0: 0x4000, ..server() }, "its BAR0 has 0x4000 bytes, and had 0x2000"),
        (TestServer { stride: 2, ..server() }, "its doorbells are 2^4 bytes apart, and were 2^2"),
        (TestServer { vectors: 2, ..server() }, "it has 2 MSI-X vectors, and 3 are in use"),
        (TestServer { mappable: false, ..server() }, "the server does not share them"),
        (TestServer { files: vec![file(0x3000, SealFlags::empty())], ..server() }, "F_SEAL_SHRINK"),
        (TestServer { chain: [(1, 0), (0, 0)], ..server() }, "no MSI-X capability"),
        (TestServer { refuses: Some(Command::DeviceSetIrqs), ..server() }, "DEVICE_SET_IRQS"),
        (TestServer { refuses: Some(Command::DmaMap), ..server() }, "DMA_MAP"),
    ];
    let (doorbells, mut servers, mut reasons) = (sealed(), vec![server()], Vec::new());
    for (server, why) in lies {
        servers.push(server);
        reasons.push(why);
    }
    let last = TestServer { files: vec![doorbells.try_clone().unwrap()], ..server() };
    let vectors_set = last.vectors_set.clone();
    servers.push(last);
    let (uri, _, _dir) = serve_each_once(servers);
    let controller = open(&uri, &options()).unwrap_or_else(|error| panic!("{error}"));
    lose_server(&controller);
    for why in reasons {
        let ServerEvent::Note(said) = next_event(&controller) else { panic!("{why}") };
        assert!(said.contains("the server is not accepted") && said.contains(why), "{said}");
    }
    assert!(matches!(next_event(&controller), ServerEvent::Back));
    controller.doorbells().ring_cq(QueueId(1), 9);
    let mut word = [0; 4];
    rustix::io::pread(&doorbells, &mut word, 0x2000 + 12).unwrap();
    assert_eq!(
        (u32::from_le_bytes(word), vectors_set.lock().unwrap().as_slice()),
        (9, [(0, 3)].as_slice())
    );
    assert!(matches!(
        controller.properties().ask(driver::Access::Get(Property::Csts)),
        AccessPoll::Pending(_)
    ));
}

/// The next server is given the memory that there is then, and vectors that were moved.
#[test]
fn reconnect_maps_all_memory_again() {
    let servers = [(); 2].map(|()| TestServer::default());
    let told = servers.each_ref().map(|server| (server.mapped.clone(), server.vectors_set.clone()));
    let (uri, _, _dir) = serve_each_once(servers.into());
    let controller = open(&uri, &options()).unwrap_or_else(|error| panic!("{error}"));
    let [kept, dropped] =
        [(); 2].map(|()| controller.register(hw::Pages::shared(1 << 20).unwrap()).ok().unwrap());
    assert_eq!(told[0].0.lock().unwrap().len(), 3, "the pool and two regions");
    drop(dropped);
    assert!(controller.route(Vector(2), Some(Vector(1))));
    lose_server(&controller);
    assert!(
        controller.route(Vector(1), Some(Vector(2))),
        "a server that is away is told when it is back"
    );
    let said = next_event(&controller);
    assert!(matches!(said, ServerEvent::Back), "{said:?}");
    assert_eq!(*told[1].0.lock().unwrap(), *told[0].0.lock().unwrap());
    assert_eq!(told[1].0.lock().unwrap().len(), 2);
    assert_eq!(told[1].1.lock().unwrap()[0], (0, 3));
    drop(kept);
    assert_eq!(told[1].0.lock().unwrap().len(), 1, "it lets go of memory like any other");
}

/// All servers of a device reach its pool: each could take huge pages away.
#[test]
fn huge_pages_need_every_servers_trust() {
    let connected = |parameters: &str| {
        let (uri, _, _dir) = TestServer::default().serve();
        ConnectedController::connect(
            &format!("{uri}{parameters}").parse().expect("a URI"),
            &options(),
        )
        .unwrap_or_else(|error| panic!("{error}"))
    };
    let (huge, trusted) = ("?hugepages=yes&trust=yes", "?trust=yes");
    let refused = shared_pool(&[connected(huge), connected("")], &options())
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(refused.contains("huge pages for another path"), "{refused}");
    for (parameters, trusts) in
        [([huge, trusted], true), ([trusted, ""], false), (["", trusted], false)]
    {
        let (shared, _) = shared_pool(&parameters.map(connected), &options())
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(hw::Pinner::is_trusted(&*shared.mapper), trusts, "{parameters:?}");
    }
}

/// A server that refuses to move a vector, as VFIO may: its messages signal its own eventfd, and
/// the caller knows.
#[test]
fn unmovable_vectors_stay() {
    let server = TestServer { moves_none: true, ..TestServer::default() };
    let controller = server.open().0.unwrap_or_else(|error| panic!("{error}"));
    assert!(!controller.route(Vector(2), Some(Vector(1))) && !controller.route(Vector(2), None));
    let server = TestServer::default();
    let vectors_set = server.vectors_set.clone();
    let controller = server.open().0.unwrap_or_else(|error| panic!("{error}"));
    assert!(controller.route(Vector(2), Some(Vector(1))) && controller.route(Vector(2), None));
    assert_eq!(*vectors_set.lock().unwrap(), [(0, 3), (2, 1), (2, 1)]);
}

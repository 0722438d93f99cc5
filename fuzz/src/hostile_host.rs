//! A controller whose host does as it likes: commands, PRP lists and SGLs, doorbells and registers
//! of any kind, at any time.

use emu::{Ana, Budget, Config, Mem, NamespaceConfig, Profile};
use nvme::opcode::{admin, io};
use nvme::sgl::Descriptor;
use nvme::{Doorbells, QueueId, Registers, regs};
use units::Nanos;

use crate::bus::{BASE, Bus, DATA, Host};
use crate::source::Source;

const MEMORY: usize = 96 << 10;

/// Steps at one instant. A full submission queue of a few thousand entries is fetched and answered
/// within.
const MOST_STEPS: u32 = 20_000;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let kind = source.u8();
    let profile =
        [Profile::null, Profile::optane, Profile::tlc, Profile::cloud][usize::from(kind & 3)]();
    let mut config = Config {
        seed: kind.into(),
        queue_pairs: 4,
        queue_entries: 64,
        vectors: 3,
        ..Config::new(profile)
    };
    if kind & 4 != 0 {
        config.ana = Some(Ana::new(nvme::AnaState::OPTIMIZED));
    }
    if kind & 8 != 0 {
        (config.ready_delay, config.shutdown_delay) =
            (Nanos::from_millis(1), Nanos::from_millis(2));
    }
    config.sgls = kind & 0x10 != 0;
    let sgls = config.sgls;
    let media = |bytes, block| {
        NamespaceConfig::mem(Mem::new(bytes, Budget::new(2 << 20)), block).expect("whole blocks")
    };
    let mut host =
        Host::new(config, vec![media(1 << 20, 512), media(8 << 20, 4096)], Bus::new(MEMORY));
    // Else the bytes have to bring it up.
    if kind & 0x80 == 0 {
        host.enable();
    }
    if kind & 0xc0 == 0 {
        host.create_queue(16);
    }
    for _ in 0..200 {
        if source.is_over() {
            break;
        }
        act(&mut host, &mut source, sgls);
    }
    settle(&mut host);
}

fn act(host: &mut Host, source: &mut Source, sgls: bool) {
    match source.u8() % 10 {
        0..3 => command(host, source, false),
        3 if sgls && source.u8() & 3 == 0 => segment(host, source),
        3 => command(host, source, sgls),
        4 => {
            let at = BASE + u64::from(source.u16()) * 8;
            let bytes = source.below(64);
            // What leaves the memory is not written.
            let _ = host.bus.write(at, source.take(bytes));
        }
        5 => ring(host, source),
        6 => {
            let offset = [
                regs::CC,
                regs::NSSR,
                regs::AQA,
                regs::ASQ,
                regs::ASQ + 4,
                regs::ACQ,
                regs::ACQ + 4,
                regs::CSTS,
            ];
            let offset = offset[source.below(offset.len())];
            let value = source.u32();
            // One that is often right: enabled, with the sizes of entries that there are.
            host.bus.write32(
                offset,
                if offset == regs::CC && value & 0x80 == 0 {
                    0x0046_0001 ^ value & 0xc001
                } else {
                    value
                },
            );
        }
        7 => settle(host),
        8 => host.now = Nanos(host.now.0 + source.any_size() % 10_000_000_000),
        _ => drop(host.controller.step(host.now)),
    }
}

/// A few descriptors that are often right, where data are.
fn segment(host: &mut Host, source: &mut Source) {
    let at = DATA + u64::from(source.u8()) * 16;
    for n in 0..source.below(40) as u64 {
        let descriptor = any_descriptor(source);
        let [low, high] = [descriptor.dptr().prp1, descriptor.dptr().prp2].map(u64::to_le_bytes);
        // What leaves the memory is not written.
        let _ = host.bus.write(at + n * 16, &[low, high].concat());
    }
}

fn any_descriptor(source: &mut Source) -> Descriptor {
    let (how, to) = (source.u8(), source.u16());
    match how % 8 {
        0..4 => Descriptor::data_block(DATA + u64::from(to) * 4, 512 << (how / 8 % 4)),
        4 => Descriptor::data_block(DATA + u64::from(to), source.any_size() as u32),
        5 => Descriptor::segment(DATA + u64::from(to % 256) * 16, u32::from(source.u8() % 64)),
        6 => Descriptor::last_segment(DATA + u64::from(to % 256) * 16, u32::from(source.u8() % 64)),
        _ => Descriptor {
            addr: source.any_size(),
            len: source.any_size() as u32,
            reserved: [0; 3],
            kind: source.u8(),
        },
    }
}

/// A command in the next slot of a queue, nearly always announced.
fn command(host: &mut Host, source: &mut Source, sgl: bool) {
    let how = source.u8();
    let queue = usize::from(how & 1);
    let mut words = [0u64; 8];
    let opcodes = if queue == 0 {
        &[
            admin::IDENTIFY,
            admin::GET_LOG_PAGE,
            admin::SET_FEATURES,
            admin::GET_FEATURES,
            admin::CREATE_CQ,
            admin::CREATE_SQ,
            admin::DELETE_SQ,
            admin::DELETE_CQ,
            admin::ABORT,
            admin::ASYNC_EVENT_REQUEST,
            admin::KEEP_ALIVE,
        ][..]
    } else {
        &[io::READ, io::WRITE, io::FLUSH, io::WRITE_ZEROES, io::DATASET_MANAGEMENT, io::READ][..]
    };
    let opcode = if how & 2 == 0 { opcodes[source.below(opcodes.len())] } else { source.u8() };
    words[0] = u64::from(opcode)
        | u64::from(source.u8() & 0x43) << 8
        | u64::from(source.u16()) << 16
        | u64::from(source.u8() % 4) << 32;
    words[3] = DATA + u64::from(source.u16()) * 4;
    words[4] = DATA + u64::from(source.u16()) * 8;
    if sgl {
        let pointer = any_descriptor(source).dptr();
        words[0] = words[0] & !0xff00 | u64::from(nvme::Sqe::PSDT_SGL) << 8;
        (words[3], words[4]) = (pointer.prp1, pointer.prp2);
    }
    for word in &mut words[5..] {
        *word = source.any_size();
    }
    if how & 4 != 0 {
        // Anything, anywhere.
        let n = source.below(8);
        words[n] = source.u64(8);
    }
    host.post_words(queue, words, how & 0x78 != 0x78);
}

fn ring(host: &Host, source: &mut Source) {
    let queue = QueueId(u16::from(source.u8() % 6));
    let value = if source.u8() & 3 == 0 { source.u32() } else { u32::from(source.u8() % 64) };
    if source.u8() & 1 == 0 {
        host.bus.ring_cq(queue, value)
    } else {
        host.bus.ring_sq(queue, value)
    }
}

/// At one instant every controller comes to rest, whatever its host says: it does not post into a
/// full queue, and no doorbell announces more than a ring holds.
fn settle(host: &mut Host) {
    for _ in 0..MOST_STEPS {
        if !host.controller.step(host.now).worked {
            return;
        }
    }
    panic!("the controller never comes to rest");
}

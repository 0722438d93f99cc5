//! Identify data structures of the controller and its namespaces (Base 5.1.13.2, NVM 4.1.5).

use nvme::admin::{self, Identify, cns, csi};
use nvme::features::AsyncEventConfig;
use nvme::identify::{
    Controller, DescriptorList, IdentifyNamespace as NamespacePage, IndependentNamespace,
    LbaFormat, MultiPath, NamespaceList, NvmController, NvmNamespace, VolatileCache, descriptor,
};
use nvme::regs::Version;
use nvme::{AnaState, Cqe, Nsid, Page, Sqe, Status, Text, opcode};

use crate::features::{NPSS, WCTEMP};
use crate::io::Store;
use crate::logs::{ERROR_ENTRIES, EVENT_REQUESTS};
use crate::subsystem::AnaStates;
use crate::{Config, Identifiers, NamespaceConfig};

/// Outstanding Aborts (ACL + 1). Each completes before the next admin command is fetched.
pub(crate) const ABORTS: u8 = 4;

/// Concurrent Cross-Controller Resets (CCRL).
pub(crate) const CROSS_RESETS: u8 = 1;

/// The page of an Identify command.
pub(crate) fn page(
    command: &Identify,
    config: &Config,
    store: &Store,
    ana: Option<&AnaStates>,
) -> Result<Vec<u8>, Status> {
    let is_nvm =
        || if command.csi == csi::NVM { Ok(()) } else { Err(Status::INVALID_FIELD.with_dnr()) };
    Ok(match command.cns {
        // An inactive namespace reads as zeroes. FFFFFFFFh requests common capabilities, which
        // requires Namespace Management.
        cns::NAMESPACE if store.is_inactive(command.nsid) => {
            NamespacePage::default().as_page().to_vec()
        }
        cns::NAMESPACE => namespace_page(store.active(command.nsid)?, config).as_page().to_vec(),
        cns::CONTROLLER => controller(config, store, ana).as_page().to_vec(),
        cns::ACTIVE_NAMESPACES => active(command.nsid, store)?.as_page().to_vec(),
        cns::NAMESPACE_DESCRIPTORS => {
            descriptors(command.nsid, store.active(command.nsid)?, config).as_page().to_vec()
        }
        cns::COMMAND_SET_NAMESPACE => {
            is_nvm()?;
            if !store.is_inactive(command.nsid) {
                store.active(command.nsid)?;
            }
            NvmNamespace::default().as_page().to_vec()
        }
        cns::COMMAND_SET_CONTROLLER => {
            is_nvm()?;
            command_limits(config).as_page().to_vec()
        }
        cns::COMMAND_SET_ACTIVE_NAMESPACES => {
            is_nvm()?;
            active(command.nsid, store)?.as_page().to_vec()
        }
        cns::INDEPENDENT_NAMESPACE if store.is_inactive(command.nsid) => {
            IndependentNamespace::default().as_page().to_vec()
        }
        cns::INDEPENDENT_NAMESPACE => {
            independent_namespace(store.active(command.nsid)?).as_page().to_vec()
        }
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    })
}

fn controller(config: &Config, store: &Store, ana: Option<&AnaStates>) -> Controller {
    let aen = AsyncEventConfig::new()
        .with_namespace_attribute(true)
        .with_ana_change(ana.is_some())
        .with_cross_reset(config.fabric.is_some());
    // TNVMCAP is the capacity of the media, not of the namespaces: resizing a namespace does not
    // change it.
    let total: u64 = store.iter().map(|(_, n)| n.media().bytes()).sum();
    // A controller with its own NQN belongs to a subsystem that may have more; otherwise it is the
    // only one.
    let several = config.nqn.is_some();
    let cmic =
        MultiPath::new().with_ports(several).with_controllers(several).with_ana(ana.is_some());
    let (groups, highest) = ana.map_or((0, 0), AnaStates::count_and_highest);
    let reported = AnaState::ALL
        .iter()
        .fold(Controller::ANACAP_STATIC_GROUPS, |bits, state| bits | state.capability());
    let fabric = config.fabric.as_ref();
    let cache = VolatileCache::new()
        .with_present(store.is_volatile())
        .with_flush_all(VolatileCache::ALL_FLUSHED);
    Controller {
        sn: Text::ascii(&config.serial),
        mn: Text::ascii(&config.model),
        fr: Text::ascii(&config.firmware),
        rab: 4,
        cmic,
        // In units of CAP.MPSMIN, which is 4 KiB, as a power of two.
        mdts: (config.max_transfer.ilog2() - 12) as u8,
        cntlid: config.controller_id,
        ver: Version::V2_1.into_bits(),
        oaes: aen.into_bits(),
        ctratt: if fabric.is_some() { Controller::CTRATT_TBKAS } else { 0 },
        cntrltype: if fabric.is_some_and(|fabric| fabric.discovery.is_some()) {
            Controller::TYPE_DISCOVERY
        } else {
            Controller::TYPE_IO
        },
        ciu: fabric.map_or(0, |fabric| fabric.instance.0),
        cirn: fabric.map_or(0, |fabric| fabric.instance.1),
        oacs: if config.shadow_doorbells { Controller::OACS_DOORBELL_BUFFERS } else { 0 },
        acl: ABORTS - 1,
        aerl: EVENT_REQUESTS as u8 - 1,
        // One firmware slot, read-only.
        frmw: 1 << 1 | 1,
        lpa: Controller::LPA_EFFECTS
            | Controller::LPA_EXTENDED_DATA
            | Controller::LPA_MISCELLANEOUS,
        elpe: ERROR_ENTRIES as u8 - 1,
        npss: NPSS,
        wctemp: WCTEMP,
        cctemp: WCTEMP + 10,
        tnvmcap: u128::from(total).into(),
        // Keep Alive granularity of 100 ms.
        kas: 1,
        sqes: Sqe::SIZE_LOG2 << 4 | Sqe::SIZE_LOG2,
        cqes: Cqe::SIZE_LOG2 << 4 | Cqe::SIZE_LOG2,
        anatt: ana.map_or(0, |ana| ana.transition_seconds),
        anacap: if ana.is_some() { reported } else { 0 },
        anagrpmax: highest,
        nanagrpid: groups,
        cqt: u16::try_from(config.quiesce_time.0.div_ceil(1_000_000)).unwrap_or(u16::MAX),
        nn: store.highest(),
        mnan: store.highest(),
        oncs: optional_commands(store),
        vwc: cache,
        maxcmd: if fabric.is_some() { config.queue_entries.min(u16::MAX.into()) as u16 } else { 0 },
        sgls: match (fabric, config.sgls) {
            (Some(_), _) => Controller::SGLS_FABRIC,
            (None, true) => Controller::SGLS_DWORDS,
            (None, false) => 0,
        },
        subnqn: Text::nul_terminated(&nqn(config)),
        // In units of 16 bytes.
        ioccsz: fabric.map_or(0, |fabric| (64 + fabric.in_capsule) / 16),
        iorcsz: u32::from(fabric.is_some()),
        msdbd: fabric.is_some().into(),
        ofcs: if fabric.is_some() { Controller::OFCS_DISCONNECT } else { 0 },
        ccrl: if fabric.is_some() { CROSS_RESETS } else { 0 },
        ..Controller::default()
    }
}

/// ONCS.
fn optional_commands(store: &Store) -> u16 {
    let bit = |opcode, bit| if store.operation(opcode).is_some() { bit } else { 0 };
    Controller::ONCS_SAVE_SELECT
        | bit(opcode::io::WRITE_ZEROES, Controller::ONCS_WRITE_ZEROES)
        | bit(opcode::io::DATASET_MANAGEMENT, Controller::ONCS_DATASET_MANAGEMENT)
        | bit(opcode::io::WRITE_UNCORRECTABLE, Controller::ONCS_WRITE_UNCORRECTABLE)
        | bit(opcode::io::COMPARE, Controller::ONCS_COMPARE)
        | bit(opcode::io::VERIFY, Controller::ONCS_VERIFY)
}

/// Identify Controller of the NVM command set: limits of optional commands, 0 if not supported.
fn command_limits(config: &Config) -> NvmController {
    let mut limits = NvmController::default();
    if config.write_zeroes {
        limits.wzsl = Config::WZSL;
    }
    if config.dataset_management {
        (limits.dmrl, limits.dmrsl) = (Config::MAX_RANGES, Config::MAX_RANGE_BLOCKS);
        limits.dmsl = Config::MAX_DEALLOCATED_BLOCKS;
    }
    if config.uncorrectable {
        limits.wusl = Config::WUSL;
    }
    if config.checks {
        // The same limit as for a Read, since both read the medium.
        limits.vsl = (config.max_transfer / 4096).max(1).ilog2() as u8;
    }
    limits
}

fn namespace_page(namespace: &NamespaceConfig, config: &Config) -> NamespacePage {
    let shift = namespace.block_shift;
    let media = namespace.media();
    let identifiers = namespace.identifiers.unwrap_or_default();
    let mut page = NamespacePage {
        nsze: namespace.blocks,
        ncap: namespace.blocks,
        // Through an inaccessible path the medium is not accessed.
        nuse: if namespace.refusal == Status::SUCCESS {
            (media.allocated() >> shift).min(namespace.blocks)
        } else {
            0
        },
        // NSFEAT.THINP.
        nsfeat: u8::from(namespace.thin),
        dlfeat: NamespacePage::DLFEAT_ZEROES
            | if config.write_zeroes { NamespacePage::DLFEAT_WRITE_ZEROES } else { 0 },
        // A boundary that does not fit is not reported, rather than reported wrongly.
        noiob: u16::try_from(config.boundary >> shift).unwrap_or(0),
        nmic: sharing(namespace),
        nvmcap: u128::from(media.bytes()).into(),
        anagrpid: namespace.ana_group,
        nguid: identifiers.nguid,
        eui64: identifiers.eui64,
        ..NamespacePage::default()
    };
    page.lbaf[0] = LbaFormat::new().with_lbads(shift);
    page
}

/// NMIC.
fn sharing(namespace: &NamespaceConfig) -> u8 {
    if namespace.is_shared() { NamespacePage::NMIC_SHARED } else { 0 }
}

/// Base 5.1.13.2.8. Namespaces are ready with the controller, as only Controller Ready With Media
/// is supported (CAP.CRMS).
fn independent_namespace(namespace: &NamespaceConfig) -> IndependentNamespace {
    IndependentNamespace {
        nmic: sharing(namespace),
        anagrpid: namespace.ana_group,
        nstat: IndependentNamespace::NSTAT_READY,
        ..IndependentNamespace::default()
    }
}

fn active(after: Nsid, store: &Store) -> Result<NamespaceList, Status> {
    // NSIDs FFFFFFFEh and FFFFFFFFh are invalid here (Base 5.1.13.2.2).
    if after.0 >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
    }
    Ok(NamespaceList::of(store.iter().map(|(nsid, _)| nsid).filter(|&nsid| nsid > after)))
}

fn descriptors(nsid: Nsid, namespace: &NamespaceConfig, config: &Config) -> DescriptorList {
    let mut list = DescriptorList::default();
    let made = Identifiers { uuid: uuid_bytes(config, nsid.0), ..Identifiers::default() };
    let Identifiers { nguid, eui64, uuid } = namespace.identifiers.unwrap_or(made);
    let all =
        [(descriptor::EUI64, &eui64[..]), (descriptor::NGUID, &nguid), (descriptor::UUID, &uuid)];
    for (kind, id) in all.into_iter().filter(|(_, id)| id.iter().any(|&byte| byte != 0)) {
        list.push(kind, id);
    }
    // A host that enables several command sets needs it to choose a driver for the namespace.
    list.push(descriptor::CSI, &[admin::csi::NVM]);
    list
}

fn nqn(config: &Config) -> String {
    config
        .nqn
        .clone()
        .unwrap_or_else(|| format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid(config, 0)))
}

/// A UUID (version 8, RFC 9562) of the subsystem (`n` = 0) or of a namespace, derived from the NQN,
/// or from serial and model number if there is none.
fn uuid_bytes(config: &Config, n: u32) -> [u8; 16] {
    // FNV-1a, 128 bits.
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let named = config.nqn.iter().flat_map(|nqn| nqn.bytes());
    let made = config.model.bytes().chain(config.serial.bytes()).filter(|_| config.nqn.is_none());
    for byte in named.chain(made).chain(n.to_le_bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let mut id = hash.to_be_bytes();
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

fn uuid(config: &Config, n: u32) -> String {
    let hex: String = uuid_bytes(config, n).iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

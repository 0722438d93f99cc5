//! Identify data and log pages of any bytes, read field by field, and what the driver makes of
//! them.

use driver::multipath::{PathIdentity, join};
use driver::{AnaLogReader, Inventory, Limits, Namespace, Reading};
use nvme::identify::{self, DescriptorList, NamespaceList, NvmController, NvmNamespace};
use nvme::log::ana::AnaLog;
use nvme::log::{ErrorEntry, Smart};
use nvme::regs::Cap;
use nvme::{Nsid, Page};

use crate::source::Source;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let (cap, what) = (Cap::from_bits(source.u64(8)), source.u8());
    let bytes = source.rest();
    // What a page is too short for is zero.
    let mut page = vec![0; 4096];
    let len = bytes.len().min(4096);
    page[..len].copy_from_slice(&bytes[..len]);
    controller(cap, &page);
    namespaces(&page);
    lists(&page);
    logs(bytes, what);
}

fn controller(cap: Cap, page: &[u8]) {
    let controller = identify::Controller::from_page(page).expect("a whole page");
    let _ = (
        controller.max_transfer(cap),
        controller.abort_limit(),
        controller.async_event_limit(),
        format!("{controller:?}"),
    );
    if let Ok(limits) = Limits::new(cap, &controller) {
        let limits =
            limits.with_command_set(cap, &NvmController::from_page(page).expect("a whole page"));
        for depth in [0, 1, 64, u32::MAX] {
            let sizes = limits.queue_sizes(depth);
            assert!(sizes.tags >= 1 && sizes.tags < sizes.sq_entries.min(sizes.cq_entries));
        }
        if let Some(most) = limits.max_transfer {
            assert!(most >= limits.page_size);
        }
    }
}

/// Four namespaces, so that a page's halves can agree or not.
fn namespaces(page: &[u8]) {
    let mut found = Vec::new();
    for part in page.chunks(1024) {
        let mut whole = vec![0; 4096];
        whole[..1024].copy_from_slice(part);
        let identify = identify::IdentifyNamespace::from_page(&whole).expect("a whole page");
        let Ok(namespace) = Namespace::new(Nsid(1), &identify) else { continue };
        assert!(namespace.block_size().is_power_of_two());
        let _ = namespace.bytes();
        let format = identify.format_index();
        let extended = NvmNamespace::from_page(&whole).expect("a whole page").format(format);
        let list = DescriptorList::from_page(&whole).expect("a whole page");
        let Ok(namespace) = namespace
            .with_extended(format, extended)
            .and_then(|namespace| namespace.with_descriptors(&list))
        else {
            continue;
        };
        assert!(namespace.is_same_as(&namespace));
        found.push(PathIdentity::new(&Inventory::default(), &namespace));
    }
    match join(&found) {
        Ok(_) => assert!(!found.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn lists(page: &[u8]) {
    let list = NamespaceList::from_page(page).expect("a whole page");
    assert!(list.iter().count() <= 1024 && list.iter().all(|nsid| nsid != Nsid(0)));
    let list = DescriptorList::from_page(page).expect("a whole page");
    let bytes: usize = list.iter().map(|descriptor| descriptor.id.len()).sum();
    assert!(bytes <= 4096 && list.iter().count() <= 1024);
}

fn logs(bytes: &[u8], what: u8) {
    if let Ok(entry) = ErrorEntry::from_page(bytes) {
        drop(format!("{entry:?} {}", entry.status()));
    }
    if let Ok(smart) = Smart::from_page(bytes) {
        drop(format!("{smart:?}"));
    }
    if let Ok(log) = AnaLog::from_bytes(bytes) {
        let groups = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert!(log.groups.len() <= groups);
        let listed: usize = log.groups.iter().map(|(_, ids)| ids.len()).sum();
        assert!(16 + log.groups.len() * 32 + listed * 4 <= bytes.len());
        let again = AnaLog::from_bytes(&log.to_bytes(false)).expect("its own page");
        assert_eq!((again.groups.len(), again.change_count), (log.groups.len(), log.change_count));
    }
    // Piece by piece, as pages of an admin command; one that never ends is given up in time.
    let (mut pieces, mut next) = (AnaLogReader::default(), Reading::Log(nvme::log::lid::ANA));
    for read in 0.. {
        assert!(read < 600, "the log is read for ever");
        // Some read short.
        let len = if what & 2 == 0 { 4096 } else { usize::from(what) * 16 };
        let from = read * usize::from(what) % bytes.len().max(1);
        let mut piece = Vec::with_capacity(len + bytes.len());
        piece.extend_from_slice(&bytes[from..]);
        while piece.len() < len && !bytes.is_empty() {
            piece.extend_from_slice(bytes);
        }
        piece.truncate(len);
        match pieces.add(next, &piece, what & 1 == 1) {
            Err(more) if what & 2 == 0 || read < 500 => {
                assert!(matches!(more, Reading::Rest(..)));
                assert_eq!(Reading::from_number(more.to_number()), more);
                next = more;
            }
            _ => break,
        }
    }
}

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nvme::regs::{self, Cap};
use nvme::{Doorbells, QueueId, Registers};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::super::*;

/// Counts calls; CAP has DSTRD = 0.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicU32>);

impl RegisterCalls for Counted {
    fn load(&self, offset: u32) -> u32 {
        let cap = Cap::new().with_mqes(31).into_bits();
        if offset == regs::CAP { cap as u32 } else { (cap >> 32) as u32 }
    }

    fn store(&self, _: u32, _: u32) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("bar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// BAR0 of two pages; the second is this area.
fn shared(
    range: Range<u64>,
    file: OwnedFd,
    at: u64,
    trusted: bool,
) -> (PciRegisters, Vec<String>, Counted) {
    let calls = Counted::default();
    let area = SharedArea { range, file, at };
    let (registers, notes) =
        PciRegisters::shared(0x2000, vec![area], Box::new(calls.clone()), trusted).unwrap();
    (registers, notes, calls)
}

#[test]
fn sealed_doorbells_are_mapped() {
    let doorbells = file(0x3000, SealFlags::SHRINK);
    let (registers, notes, calls) =
        shared(0x1000..0x2000, doorbells.try_clone().unwrap(), 0x2000, false);
    assert!(registers.maps_doorbells() && notes.is_empty(), "{notes:?}");
    registers.ring_sq(QueueId(3), 7);
    registers.write32(regs::CC, 1);
    assert_eq!(calls.0.load(Ordering::Relaxed), 1, "CC is not mapped, the doorbell is");
    let mut word = [0; 4];
    rustix::io::pread(doorbells.as_fd(), &mut word, 0x2000 + 6 * 4).unwrap();
    assert_eq!(u32::from_le_bytes(word), 7);
}

/// An area that the server describes wrongly is not mapped but accessed by calls, and a note says
/// why.
#[test]
fn unsealed_files_are_not_mapped() {
    let sealed = |bytes| file(bytes, SealFlags::SHRINK);
    let (_, pipe) = std::io::pipe().unwrap();
    let bad_areas = [
        (0x1000..0x2000, file(0x1000, SealFlags::empty()), 0, "F_SEAL_SHRINK"),
        (0x1000..0x2000, sealed(0x1000), 0x1000, "has 0x1000 bytes"),
        (0x1000..0x2000, sealed(0x1800), 0x1000, "has 0x1800 bytes"),
        (0x1000..0x2000, sealed(0x1000), u64::MAX - 0xfff, "not within BAR0"),
        (0x1000..0x2000, sealed(0x2000), 8, "not whole pages"),
        (0x1000..0x1800, sealed(0x2000), 0, "not whole pages"),
        (0x1000..0x3000, sealed(0x3000), 0, "not within BAR0"),
        (0x1000..0x1000, sealed(0x3000), 0, "not within BAR0"),
        (0x1000..0x2000, pipe.into(), 0, "not a regular file"),
        (0x1000..0x2000, file(0x1000, SealFlags::SHRINK | SealFlags::WRITE), 0, "cannot be mapped"),
    ];
    for (range, file, at, why) in bad_areas {
        let (registers, notes, calls) = shared(range.clone(), file, at, false);
        assert!(
            !registers.maps_doorbells() && notes.len() == 1 && notes[0].contains(why),
            "{range:?} {why}: {notes:?}"
        );
        registers.ring_sq(QueueId(1), 1);
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_trusted_server_needs_no_seal() {
    let (registers, notes, _) = shared(0x1000..0x2000, file(0x1000, SealFlags::empty()), 0, true);
    assert!(registers.maps_doorbells() && notes.is_empty());
}

/// After a reconnect the doorbells are in the file of another server.
#[test]
fn renewed_areas_keep_their_address() {
    let doorbell_in = |file: &OwnedFd| {
        let mut word = [0; 4];
        rustix::io::pread(file, &mut word, 8).unwrap();
        u32::from_le_bytes(word)
    };
    let sealed = |bytes| file(bytes, SealFlags::SHRINK);
    let (old, new) = (sealed(0x1000), sealed(0x2000));
    let (registers, _, calls) = shared(0x1000..0x2000, old.try_clone().unwrap(), 0, false);
    let area =
        |range, file: &OwnedFd, at| vec![SharedArea { range, file: file.try_clone().unwrap(), at }];
    registers.ring_sq(QueueId(1), 5);
    let refused = [
        (0x3000, area(0x1000..0x2000, &new, 0), "BAR0 has 0x3000 bytes, and had 0x2000 before"),
        (0x2000, Vec::new(), "does not share them"),
        (0x2000, area(0..0x1000, &new, 0), "does not share them"),
        (0x2000, area(0x1000..0x2000, &new, 0x2000), "has 0x2000 bytes"),
        (0x2000, area(0x1000..0x2000, &file(0x1000, SealFlags::empty()), 0), "F_SEAL_SHRINK"),
    ];
    for (bytes, areas, why) in refused {
        let error = registers.renew(bytes, areas, false).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    registers.ring_sq(QueueId(1), 6);
    assert_eq!((doorbell_in(&old), doorbell_in(&new)), (6, 0), "a refused renewal changes nothing");
    registers.renew(0x2000, area(0x1000..0x2000, &new, 0), false).unwrap();
    registers.ring_sq(QueueId(1), 7);
    assert_eq!((doorbell_in(&old), doorbell_in(&new), calls.0.load(Ordering::Relaxed)), (6, 7, 0));
}

#[test]
fn huge_page_doorbells_stay_unmapped() {
    let kind = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | MemfdFlags::HUGETLB
        | MemfdFlags::HUGE_2MB;
    let Ok(file) = memfd_create("bar", kind) else {
        return println!("skipped: the kernel has no hugetlbfs");
    };
    ftruncate(&file, 2 << 20).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let (_registers, notes, _) = shared(0x1000..0x2000, file, 0, false);
    assert!(notes.iter().any(|note| note.contains("huge pages")), "{notes:?}");
}

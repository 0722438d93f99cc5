mod shared;

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;

/// A file that stands for BAR0, with CAP.DSTRD = 1.
fn registers(bytes: u64) -> (File, Result<PciRegisters, VfioError>) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    let cap = Cap::new().with_dstrd(1).with_mqes(31).into_bits();
    file.write_all_at(&cap.to_le_bytes(), 0).unwrap();
    let registers = PciRegisters::mapped_whole(file.as_fd(), 0, bytes);
    (file, registers)
}

#[test]
fn registers_and_doorbells_are_mapped() {
    let (file, registers) = registers(0x2000);
    let registers = registers.unwrap();
    assert_eq!(Cap::from_bits(registers.read64(regs::CAP)).mqes(), 31);
    registers.write32(regs::CC, 0x0046_0001);
    registers.ring_sq(QueueId(3), 7);
    registers.ring_cq(QueueId(3), 9);
    let at = |offset: u64| {
        let mut word = [0; 4];
        file.read_exact_at(&mut word, offset).unwrap();
        u32::from_le_bytes(word)
    };
    assert_eq!(at(regs::CC.into()), 0x0046_0001);
    // Doorbells are 8 bytes apart: the sixth and seventh.
    assert_eq!((at(0x1000 + 6 * 8), at(0x1000 + 7 * 8)), (7, 9));
    assert_eq!(registers.read32(regs::CC), 0x0046_0001);
}

#[test]
fn offsets_beyond_the_bar_read_ones() {
    let (file, registers) = registers(0x2000);
    let registers = registers.unwrap();
    registers.ring_sq(QueueId(1000), 7);
    registers.write32(u32::MAX - 3, 1);
    assert_eq!(
        (registers.read32(0x2000), registers.read32(0x1ffe), registers.read32(u32::MAX)),
        (u32::MAX, u32::MAX, u32::MAX)
    );
    assert_eq!(file.metadata().unwrap().len(), 0x2000);
}

#[test]
fn short_bars_are_refused() {
    let (_, registers) = registers(0x1000);
    assert!(registers.unwrap_err().to_string().contains("BAR0 has 4096 bytes"));
}

use std::mem::{align_of, size_of};

use super::*;

const QUEUE: QueueId = QueueId(2);

#[test]
fn host_and_device_share_doorbells() {
    let bar = Bar::new(2);
    bar.ring_sq(QUEUE, 7);
    bar.ring_cq(QUEUE, 9);
    assert_eq!((bar.sq_tail(QUEUE), bar.cq_head(QUEUE), bar.sq_tail(QueueId(1))), (7, 9, 0));
    assert_eq!((size_of::<PaddedDoorbell>(), align_of::<PaddedDoorbell>()), (64, 64));
}

/// A host that computes doorbell offsets from CAP.DSTRD (PCIe Transport 3.1.2) reaches the
/// doorbells of the controller.
#[test]
fn doorbells_follow_the_stride() {
    for dstrd in 0..=15 {
        let bar = Bar::new(2);
        bar.write64(regs::CAP, Cap::new().with_dstrd(dstrd).into_bits());
        bar.ring_cq(QUEUE, 9);
        assert_eq!(bar.read32(regs::cq_head_doorbell(QUEUE, dstrd)), 9, "{dstrd}");
        bar.write32(regs::sq_tail_doorbell(QUEUE, dstrd), 3);
        assert_eq!(bar.sq_tail(QUEUE), 3);
        assert_eq!(
            bar.read32(regs::cq_head_doorbell(QUEUE, dstrd) + 1),
            u32::MAX,
            "not a doorbell's first byte"
        );
    }
}

#[test]
fn registers_are_32_or_64_bits() {
    let bar = Bar::new(1);
    bar.write64(0x28, 0x1122_3344_5566_7788);
    assert_eq!(
        (bar.read32(0x28), bar.read32(0x2c), bar.read64(0x28)),
        (0x5566_7788, 0x1122_3344, 0x1122_3344_5566_7788)
    );
}

#[test]
fn unmapped_offsets_read_all_ones() {
    let bar = Bar::new(1);
    for offset in [0x1000 + (4 << 2), 0x10_0000, u32::MAX] {
        bar.write32(offset, 1);
        assert_eq!(bar.read32(offset), u32::MAX);
    }
    bar.ring_sq(QueueId(u16::MAX), 1);
    assert_eq!((bar.sq_tail(QueueId(u16::MAX)), bar.cq_head(QueueId(2))), (0, 0));
}

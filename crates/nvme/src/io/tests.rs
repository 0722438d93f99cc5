use proptest::prelude::*;

use super::*;
use crate::tests::counterexample;

type Fields = (u32, u64, u32, (u64, u64), u32);

fn fields() -> impl Strategy<Value = Fields> {
    (any::<u32>(), any::<u64>(), 1..=MAX_BLOCKS, any::<(u64, u64)>(), 0..4u32)
}

/// Decoding by `decode` inverts encoding.
fn round_trips(
    &(nsid, lba, blocks, (prp1, prp2), flags): &Fields,
    decode: impl Fn(&Sqe) -> Transfer,
) -> bool {
    let (data, flags) = (Dptr { prp1, prp2 }, Flags(flags << 30));
    [(read as fn(_, _, _, _, _) -> _, opcode::io::READ), (write, opcode::io::WRITE)]
        .into_iter()
        .all(|(command, opcode)| {
            let sqe: Sqe = command(Nsid(nsid), Lba(lba), blocks, data, flags);
            (sqe.opcode, sqe.nsid(), sqe.dptr()) == (opcode, Nsid(nsid), data)
                && decode(&sqe) == Transfer { lba: Lba(lba), blocks, flags, prinfo: 0 }
        })
}

#[test]
fn reads_and_writes_round_trip() {
    assert_eq!(counterexample(1000, fields(), |f| round_trips(f, Transfer::from_sqe)), None);
}

#[test]
fn mutated_decoder_is_caught() {
    let not_zeroes_based =
        |sqe: &Sqe| Transfer { blocks: sqe.cdw12 & 0xffff, ..Transfer::from_sqe(sqe) };
    let low_half_of_lba =
        |sqe: &Sqe| Transfer { lba: Lba(u64::from(sqe.cdw10)), ..Transfer::from_sqe(sqe) };
    assert!(counterexample(1000, fields(), |f| round_trips(f, not_zeroes_based)).is_some());
    assert!(counterexample(1000, fields(), |f| round_trips(f, low_half_of_lba)).is_some());
}

#[test]
fn write_bytes_match_the_specification() {
    let data = Dptr { prp1: 0x1000, prp2: 0x2000 };
    let sqe = Sqe { cid: 0x1234, ..write(Nsid(1), Lba(0x1_0000_0002), 8, data, Flags::FUA) };
    assert_eq!(
        sqe.to_words(),
        [0x1_1234_0001, 0, 0, 0x1000, 0x2000, 0x1_0000_0002, 1 << 30 | 7, 0]
    );
    assert!(Transfer::from_sqe(&sqe).flags.contains(Flags::FUA));
}

#[test]
fn flush_carries_only_its_namespace() {
    assert_eq!(flush(Nsid::ALL), Sqe { opcode: 0, nsid: u32::MAX, ..Sqe::default() });
}

#[test]
fn range_check_does_not_overflow() {
    let law = |&(lba, blocks, size): &(u64, u32, u64)| {
        let transfer = Transfer { lba: Lba(lba), blocks, flags: Flags::NONE, prinfo: 0 };
        transfer.fits(size) == (u128::from(lba) + u128::from(blocks) <= u128::from(size))
    };
    let near = |around: u64| around.saturating_sub(70_000)..=around.saturating_add(70_000);
    assert_eq!(counterexample(1000, (near(u64::MAX), 1..=MAX_BLOCKS, near(u64::MAX)), law), None);
    assert_eq!(counterexample(1000, (near(1 << 20), 1..=MAX_BLOCKS, near(1 << 20)), law), None);
    assert_eq!(counterexample(100, (near(0), 1..=MAX_BLOCKS, near(0)), law), None);
}

#[test]
fn any_entry_decodes() {
    let law = |words: &[u64; 8]| {
        let sqe = Sqe::from_words(*words);
        let transfer = Transfer::from_sqe(&sqe);
        let _ = transfer.fits(words[0]);
        (1..=MAX_BLOCKS).contains(&transfer.blocks) && sqe.to_words() == *words
    };
    assert_eq!(counterexample(1000, any::<[u64; 8]>(), law), None);
}

#[test]
fn write_zeroes_bytes() {
    let sqe = Sqe {
        cid: 0x1234,
        ..write_zeroes(Nsid(1), Lba(0x1_0000_0002), MAX_BLOCKS, Flags::DEALLOCATE | Flags::FUA)
    };
    assert_eq!(
        sqe.to_words(),
        [0x1_1234_0008, 0, 0, 0, 0, 0x1_0000_0002, 1 << 30 | 1 << 25 | 0xffff, 0]
    );
    let transfer = Transfer::from_sqe(&sqe);
    assert_eq!((transfer.blocks, transfer.flags, transfer.prinfo), (MAX_BLOCKS, Flags::FUA, 0));
    assert!(Transfer::deallocates(&sqe));
    assert!(!Transfer::deallocates(&write_zeroes(Nsid(1), Lba(0), 1, Flags::FUA)));
}

#[test]
fn deallocate_bytes_match_the_specification() {
    let sqe = deallocate(Nsid(3), 256, Dptr { prp1: 0x1010, prp2: 0 });
    assert_eq!(sqe.to_words(), [0x3_0000_0009, 0, 0, 0x1010, 0, 0x4_0000_00ff, 0, 0]);
    let range = Range::new(Lba(0x1122_3344_5566_7788), 0x99aa_bbcc);
    assert_eq!(range.to_bytes(), *b"\0\0\0\0\xcc\xbb\xaa\x99\x88\x77\x66\x55\x44\x33\x22\x11");
}

#[test]
fn ranges_and_their_command_round_trip() {
    let law = |&(nsid, ranges, prps, bytes): &(u32, u32, (u64, u64), [u8; 16])| {
        let data = Dptr { prp1: prps.0, prp2: prps.1 };
        let sqe = deallocate(Nsid(nsid), ranges, data);
        let decoded = DatasetManagement::from_sqe(&sqe);
        (sqe.nsid(), sqe.dptr(), decoded)
            == (Nsid(nsid), data, DatasetManagement { ranges, deallocate: true })
            && decoded.bytes() <= 4096
            && Range::from_bytes(bytes).to_bytes() == bytes
    };
    assert_eq!(
        counterexample(
            1000,
            (any::<u32>(), 1..=MAX_RANGES, any::<(u64, u64)>(), any::<[u8; 16]>()),
            law
        ),
        None
    );
    let hint = Sqe { cdw11: 0b011, ..deallocate(Nsid(1), 1, Dptr::NONE) };
    assert!(!DatasetManagement::from_sqe(&hint).deallocate, "IDR and IDW are other attributes");
}

#[test]
fn a_range_fits_without_overflow() {
    let law = |&(lba, blocks, size): &(u64, u32, u64)| {
        Range::new(Lba(lba), blocks).fits(size)
            == (blocks == 0 || u128::from(lba) + u128::from(blocks) <= u128::from(size))
    };
    for around in [0, 1 << 20, u64::MAX] {
        let near = |n: u64| n.saturating_sub(70_000)..=n.saturating_add(70_000);
        assert_eq!(counterexample(1000, (near(around), 0..=MAX_BLOCKS, near(around)), law), None);
    }
}

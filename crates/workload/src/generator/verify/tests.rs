use super::*;
use proptest::prelude::*;
use units::Op;

const OPEN: Expected = Expected { generation: None, sequence: None };

fn io(offset: u64, len: u32) -> Io {
    Io { slot: 0, op: Op::Read, target: 3, offset, len }
}

fn faults(offset: u64, interval: u32, expected: Expected, data: &[u8]) -> Vec<BadBlock> {
    let mut bad = Vec::new();
    check(&io(offset, data.len() as u32), interval, expected, data, |block| bad.push(block));
    bad
}

fn filled(offset: u64, interval: u32, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    fill(&io(offset, len as u32), interval, 77, 5, &mut data);
    data
}

proptest! {
    #[test]
    fn any_flipped_bit_is_found_where_it_is(blocks in 1usize..5, bit in any::<prop::sample::Index>()) {
        let mut data = filled(8192, 512, blocks * 512);
        prop_assert!(faults(8192, 512, OPEN, &data).is_empty());
        let bit = bit.index(data.len() * 8);
        data[bit / 8] ^= 1 << (bit % 8);
        let found = faults(8192, 512, OPEN, &data);
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(found[0].offset, 8192 + (bit / 8 / 512 * 512) as u64);
        prop_assert_eq!((found[0].target, found[0].len), (3, 512));
    }

    #[test]
    fn data_of_any_kind_never_panics(data in proptest::collection::vec(any::<u8>(), 0..200), interval: u32, offset: u64) {
        faults(offset & !511, interval, OPEN, &data);
    }

    #[test]
    fn each_interval_stands_for_itself(start in 0usize..8, len in 1usize..8) {
        // Written as one, read in other pieces.
        let data = filled(0, 512, 16 * 512);
        let part = &data[start * 512..(start + len) * 512];
        prop_assert!(faults(start as u64 * 512, 512, OPEN, part).is_empty());
    }
}

#[test]
fn each_fault_has_its_name() {
    let data = filled(4096, 4096, 4096);
    let fault = |offset, interval, expected, data: &[u8]| faults(offset, interval, expected, data)[0].fault;
    assert_eq!(fault(4096, 4096, OPEN, &[0; 4096]), Fault::Magic);
    assert_eq!(fault(8192, 4096, OPEN, &data), Fault::Offset { found: 4096 });
    assert_eq!(fault(4096, 512, OPEN, &data[..512]), Fault::Length { found: 4096 });
    let other = Expected { generation: Some(78), sequence: None };
    assert_eq!(fault(4096, 4096, other, &data), Fault::Generation { found: 77 });
    let later = Expected { generation: Some(77), sequence: Some(6) };
    assert_eq!(fault(4096, 4096, later, &data), Fault::Sequence { found: 5, wanted: 6 });
    assert_eq!(fault(4096, 4096, OPEN, &data[..HEADER - 1]), Fault::Short);
    let mut damaged = data.clone();
    damaged[20] ^= 1;
    assert_eq!(fault(4096, 4096, OPEN, &damaged), Fault::Header);
    damaged[20] ^= 1;
    damaged[HEADER] ^= 1;
    assert!(matches!(fault(4096, 4096, OPEN, &damaged), Fault::Checksum { .. }));
    assert!(faults(4096, 4096, Expected { generation: Some(77), sequence: Some(5) }, &data).is_empty());
}

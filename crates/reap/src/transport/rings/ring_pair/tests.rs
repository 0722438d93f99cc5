use hw::DmaPool;
use nvme::Nsid;

use super::*;

/// A controller may refuse the Deallocate bit of a Write Zeroes where its namespace does not take
/// it (DLFEAT bit 3), as SPDK's target does.
#[test]
fn write_zeroes_sets_deallocate() {
    let pool = DmaPool::new(4 << 20).unwrap();
    let prp = PrpTable::new(&pool).unwrap();
    for (keep, frees, fua) in
        [(false, true, false), (false, false, false), (true, true, true), (true, false, true)]
    {
        let part = Part {
            op: Op::WriteZeroes,
            fua,
            keep,
            nsid: Nsid(1),
            lba: 8,
            blocks: 16,
            addr: 0,
            bytes: 0,
            buf: &None,
        };
        let (room, durable) = (
            if !keep && frees { Flags::DEALLOCATE } else { Flags::NONE },
            if fua { Flags::FUA } else { Flags::NONE },
        );
        let zeroes = nvme::io::write_zeroes(Nsid(1), Lba(8), 16, durable | room);
        assert_eq!(
            other_command(&part, &prp, || false, frees),
            zeroes,
            "keep {keep}, frees {frees}"
        );
    }
}

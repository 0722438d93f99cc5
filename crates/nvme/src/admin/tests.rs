use proptest::prelude::*;

use super::*;
use crate::tests::counterexample;
use crate::{QueueId, Vector};

fn data() -> impl Strategy<Value = Dptr> {
    any::<(u64, u64)>().prop_map(|(prp1, prp2)| Dptr { prp1, prp2 })
}

fn create_cq() -> impl Strategy<Value = CreateCq> {
    (any::<u16>(), 1..=65_536u32, any::<u64>(), any::<bool>(), any::<Option<u16>>()).prop_map(
        |(queue, entries, addr, contiguous, vector)| CreateCq {
            queue: QueueId(queue),
            entries,
            addr,
            contiguous,
            vector: vector.map(Vector),
        },
    )
}

fn create_sq() -> impl Strategy<Value = CreateSq> {
    (any::<u16>(), 1..=65_536u32, any::<u64>(), any::<bool>(), 0..4u8, any::<u16>()).prop_map(
        |(queue, entries, addr, contiguous, priority, cq)| CreateSq {
            queue: QueueId(queue),
            entries,
            addr,
            contiguous,
            priority,
            cq: QueueId(cq),
        },
    )
}

fn identify() -> impl Strategy<Value = Identify> {
    (any::<u8>(), any::<u32>(), any::<u16>(), any::<u8>(), any::<u16>(), data()).prop_map(
        |(cns, nsid, cntid, csi, cns_specific, data)| Identify {
            cns,
            nsid: Nsid(nsid),
            cntid,
            csi,
            cns_specific,
            data,
        },
    )
}

fn get_log_page() -> impl Strategy<Value = GetLogPage> {
    let of_page = (any::<u8>(), any::<u32>(), 0..0x80u8, any::<bool>(), any::<u16>(), any::<u8>());
    (of_page, 0..=u64::from(u32::MAX), any::<u64>(), any::<bool>(), data()).prop_map(
        |((lid, nsid, lsp, retain_event, lsi, csi), numd, offset, offset_is_index, data)| {
            GetLogPage {
                lid,
                nsid: Nsid(nsid),
                lsp,
                retain_event,
                len: (numd + 1) * 4,
                lsi,
                offset,
                offset_is_index,
                csi,
                data,
            }
        },
    )
}

fn get_features() -> impl Strategy<Value = GetFeatures> {
    (any::<u8>(), 0..8u8, any::<u32>(), any::<u32>(), data()).prop_map(
        |(fid, select, nsid, value, data)| GetFeatures {
            fid,
            select,
            nsid: Nsid(nsid),
            value,
            data,
        },
    )
}

fn set_features() -> impl Strategy<Value = SetFeatures> {
    (any::<u8>(), any::<bool>(), any::<u32>(), any::<u32>(), data()).prop_map(
        |(fid, save, nsid, value, data)| SetFeatures { fid, save, nsid: Nsid(nsid), value, data },
    )
}

fn abort() -> impl Strategy<Value = Abort> {
    any::<(u16, u16)>().prop_map(|(sq, cid)| Abort { sq: QueueId(sq), cid: Cid(cid) })
}

/// Decoding inverts encoding.
macro_rules! round_trip {
    ($values:expr, $command:ident, $opcode:ident) => {{
        let law = |command: &$command| {
            let sqe = Sqe::from_words(command.to_sqe().to_words());
            sqe.opcode == opcode::admin::$opcode
                && sqe.flags == 0
                && $command::from_sqe(&sqe) == *command
        };
        assert_eq!(counterexample(500, $values, law), None);
    }};
}

#[test]
fn commands_round_trip() {
    round_trip!(create_cq(), CreateCq, CREATE_CQ);
    round_trip!(create_sq(), CreateSq, CREATE_SQ);
    round_trip!(identify(), Identify, IDENTIFY);
    round_trip!(get_log_page(), GetLogPage, GET_LOG_PAGE);
    round_trip!(get_features(), GetFeatures, GET_FEATURES);
    round_trip!(set_features(), SetFeatures, SET_FEATURES);
    round_trip!(abort(), Abort, ABORT);
}

#[test]
fn mutated_decoder_is_caught() {
    let lower_half_of_numd = |c: &GetLogPage| {
        GetLogPage::from_sqe(&Sqe { cdw11: c.to_sqe().cdw11 & !0xffff, ..c.to_sqe() }) == *c
    };
    let vector_without_ien = |c: &CreateCq| {
        let sqe = c.to_sqe();
        CreateCq { vector: Some(Vector((sqe.cdw11 >> 16) as u16)), ..CreateCq::from_sqe(&sqe) }
            == *c
    };
    assert!(counterexample(500, get_log_page(), lower_half_of_numd).is_some());
    assert!(counterexample(500, create_cq(), vector_without_ien).is_some());
}

#[test]
fn command_dwords_match_the_specification() {
    let cq = CreateCq {
        queue: QueueId(3),
        entries: 1024,
        addr: 0x7000,
        contiguous: true,
        vector: Some(Vector(5)),
    };
    let sqe = cq.to_sqe();
    assert_eq!(
        (sqe.opcode, sqe.prp1, sqe.cdw10, sqe.cdw11),
        (0x05, 0x7000, 0x03ff_0003, 0x0005_0003)
    );

    let sq = CreateSq {
        queue: QueueId(3),
        entries: 2,
        addr: 0x8000,
        contiguous: true,
        priority: 2,
        cq: QueueId(4),
    };
    let sqe = sq.to_sqe();
    assert_eq!(
        (sqe.opcode, sqe.prp1, sqe.cdw10, sqe.cdw11),
        (0x01, 0x8000, 0x0001_0003, 0x0004_0005)
    );

    let sqe = Identify {
        csi: 2,
        ..Identify::new(cns::COMMAND_SET_NAMESPACE, Nsid(7), Dptr { prp1: 0x1000, prp2: 0 })
    }
    .to_sqe();
    assert_eq!(
        (sqe.opcode, sqe.nsid, sqe.prp1, sqe.cdw10, sqe.cdw11),
        (0x06, 7, 0x1000, 0x05, 0x0200_0000)
    );

    let page = GetLogPage {
        retain_event: true,
        offset: 0x1_0000_0004,
        ..GetLogPage::new(2, 512, Dptr::NONE)
    };
    let sqe = page.to_sqe();
    assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10, sqe.cdw11), (0x02, u32::MAX, 0x007f_8002, 0));
    assert_eq!((sqe.cdw12, sqe.cdw13), (4, 1));

    let sqe = SetFeatures::new(0x07, crate::features::NumberOfQueues::of(8, 4)).to_sqe();
    assert_eq!((sqe.opcode, sqe.cdw10, sqe.cdw11), (0x09, 0x07, 0x0003_0007));
    let sqe = GetFeatures { select: 3, ..GetFeatures::current(0x08) }.to_sqe();
    assert_eq!((sqe.opcode, sqe.cdw10), (0x0a, 0x308));

    let sqe = Abort { sq: QueueId(2), cid: Cid(0xabcd) }.to_sqe();
    assert_eq!((sqe.opcode, sqe.cdw10), (0x08, 0xabcd_0002));
    let deletes = [delete_sq(QueueId(7)), delete_cq(QueueId(8))];
    assert_eq!(deletes.map(|sqe| (sqe.opcode, sqe.cdw10)), [(0x00, 7), (0x04, 8)]);
    assert_eq!((async_event_request().opcode, keep_alive().opcode), (0x0c, 0x18));
}

#[test]
fn any_entry_round_trips() {
    // Reserved bits are dropped; encoding again changes nothing.
    let law = |words: &[u64; 8]| {
        let sqe = Sqe::from_words(*words);
        macro_rules! stable {
            ($($command:ident),*) => {
                [$({
                    let decoded = $command::from_sqe(&sqe);
                    $command::from_sqe(&decoded.to_sqe()) == decoded
                }),*]
            };
        }
        let stable =
            stable![CreateCq, CreateSq, Identify, GetLogPage, GetFeatures, SetFeatures, Abort];
        let _ = GetLogPage::from_sqe(&sqe).range_of(words[1]);
        stable.into_iter().all(|s| s)
    };
    assert_eq!(counterexample(2000, any::<[u64; 8]>(), law), None);
}

#[test]
fn log_page_is_cut_to_length() {
    let page = |offset, len| GetLogPage { offset, ..GetLogPage::new(2, len, Dptr::NONE) };
    assert_eq!(page(0, 512).range_of(512), Ok(0..512));
    assert_eq!(page(0, 4096).range_of(512), Ok(0..512));
    assert_eq!(page(500, 4).range_of(512), Ok(500..504));
    assert_eq!(page(512, 4).range_of(512), Ok(512..512));
    assert_eq!(page(516, 4).range_of(512), Err(Status::INVALID_FIELD));
    assert_eq!(
        GetLogPage { offset_is_index: true, ..page(0, 4) }.range_of(512),
        Err(Status::INVALID_FIELD)
    );
}

#[test]
fn log_page_ranges_stay_inside() {
    let law = |(command, page): &(GetLogPage, u64)| match command.range_of(*page) {
        Ok(range) => {
            range.start <= range.end && range.end <= *page && range.end - range.start <= command.len
        }
        Err(status) => status == Status::INVALID_FIELD,
    };
    assert_eq!(counterexample(1000, (get_log_page(), any::<u64>()), law), None);
}

#[test]
fn event_fields_match_the_specification() {
    let event = AsyncEvent::new()
        .with_event_type(event_type::NOTICE)
        .with_info(notice::NAMESPACE_ATTRIBUTE_CHANGED)
        .with_lid(4);
    assert_eq!(event.into_bits(), 0x0004_0002);
    let event = AsyncEvent::from_bits(0x0001_0100);
    assert_eq!(
        (event.event_type(), event.info(), event.lid()),
        (event_type::ERROR, error_event::INVALID_DOORBELL_VALUE, 1)
    );
}

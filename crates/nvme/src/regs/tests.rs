use super::*;

#[test]
fn doorbells_are_interleaved_at_the_stride() {
    assert_eq!([0, 1, 3].map(|q| sq_tail_doorbell(QueueId(q), 0)), [0x1000, 0x1008, 0x1018]);
    assert_eq!([0, 1, 3].map(|q| cq_head_doorbell(QueueId(q), 0)), [0x1004, 0x100c, 0x101c]);
    // DSTRD 4: 64 bytes apart, one cache line each.
    assert_eq!(
        (sq_tail_doorbell(QueueId(2), 4), cq_head_doorbell(QueueId(2), 4)),
        (0x1100, 0x1140)
    );
}

#[test]
fn doorbell_offsets_of_any_stride() {
    for dstrd in 0..=u8::MAX {
        let _ = cq_head_doorbell(QueueId(u16::MAX), dstrd);
    }
}

#[test]
fn capability_fields_match_the_specification() {
    // Encoded by hand from the figure: MQES 1023, CQR, weighted round robin, TO 20, DSTRD 4, NSSRS,
    // CSS NVM, MPSMIN 0, MPSMAX 4, CRMS 1.
    let bits =
        0x03ff | 1 << 16 | 1 << 17 | 20 << 24 | 4 << 32 | 1 << 36 | 1 << 37 | 4 << 52 | 1 << 59;
    let cap = Cap::from_bits(bits);
    assert_eq!(
        (cap.max_entries(), cap.cqr(), cap.ams(), cap.timeout_ms()),
        (1024, true, 1, 10_000)
    );
    assert_eq!((cap.dstrd(), cap.nssrs(), cap.css(), cap.crms()), (4, true, Cap::CSS_NVM, 1));
    assert_eq!((cap.mpsmin(), cap.mpsmax()), (0, 4));
    let built = Cap::new()
        .with_mqes(1023)
        .with_cqr(true)
        .with_ams(1)
        .with_to(20)
        .with_dstrd(4)
        .with_nssrs(true);
    assert_eq!(built.with_css(Cap::CSS_NVM).with_mpsmax(4).with_crms(1), cap);
}

#[test]
fn every_value_of_cap_has_limits() {
    let extreme = Cap::from_bits(u64::MAX);
    assert_eq!((extreme.max_entries(), extreme.timeout_ms()), (65_536, 127_500));
}

#[test]
fn configuration_and_status_fields() {
    let cc = Cc::new()
        .with_en(true)
        .with_css(Cc::CSS_ALL)
        .with_mps(1)
        .with_shn(2)
        .with_iosqes(6)
        .with_iocqes(4);
    assert_eq!(cc.into_bits(), 1 | 6 << 4 | 1 << 7 | 2 << 14 | 6 << 16 | 4 << 20);
    let csts = Csts::from_bits(0b1_1011);
    assert_eq!(
        (csts.rdy(), csts.cfs(), csts.shst(), csts.nssro()),
        (true, true, Csts::SHST_COMPLETE, true)
    );
    assert!(Csts::from_bits(u32::MAX).is_gone() && !csts.is_gone());
}

#[test]
fn admin_queue_sizes_are_clamped() {
    let aqa = Aqa::of(32, 64);
    assert_eq!(aqa.into_bits(), 31 | 63 << 16);
    assert_eq!((aqa.sq_entries(), aqa.cq_entries()), (32, 64));
    assert_eq!(Aqa::of(0, 1 << 20), Aqa::of(2, 4096));
}

#[test]
fn versions_compare_and_print() {
    assert_eq!(
        (Version::V2_1.to_string().as_str(), Version::V2_1.into_bits()),
        ("2.1.0", 0x0002_0100)
    );
    assert!(Version::from_bits(0x0001_0400) < Version::V2_1);
}

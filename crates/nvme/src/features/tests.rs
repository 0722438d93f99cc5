use super::*;
use crate::Page;

#[test]
fn feature_fields_match_the_specification() {
    assert_eq!(Arbitration::new().with_ab(3).into_bits(), 3);
    assert_eq!(PowerManagement::new().with_ps(3).with_wh(1).into_bits(), 0x23);
    let threshold =
        TemperatureThreshold::new().with_tmpth(343).with_tmpsel(0xf).with_thsel(1).with_tmpthh(1);
    assert_eq!(threshold.into_bits(), 0x005f_0157);
    assert_eq!(ErrorRecovery::new().with_tler(7).with_dulbe(true).into_bits(), 0x0001_0007);
    assert_eq!(WriteAtomicity::new().with_dn(true).into_bits(), 1);
    assert_eq!(InterruptCoalescing::new().with_thr(7).with_time(2).into_bits(), 0x0207);
    assert_eq!(VectorConfig::new().with_iv(5).with_cd(true).into_bits(), 0x0001_0005);
    assert_eq!(VolatileWriteCache::new().with_wce(true).into_bits(), 1);
    let events = AsyncEventConfig::new().with_smart(0x3f).with_namespace_attribute(true);
    assert_eq!(events.with_ana_change(true).into_bits(), 0x093f);
    assert_eq!(Capabilities::new().with_changeable(true).into_bits(), 0b100);
}

#[test]
fn arbitration_bursts_are_powers_of_two() {
    let bursts = [0, 3, 6, 7].map(|ab| Arbitration::new().with_ab(ab).burst());
    assert_eq!(bursts, [Some(1), Some(8), Some(64), None]);
}

#[test]
fn numbers_of_queues_are_zeroes_based() {
    let eight = NumberOfQueues::of(8, 4);
    assert_eq!((eight.into_bits(), eight.submission(), eight.completion()), (0x0003_0007, 8, 4));
    assert_eq!(
        (NumberOfQueues::of(0, 1 << 20).submission(), NumberOfQueues::of(0, 1 << 20).completion()),
        (1, 65_535)
    );
}

#[test]
fn coalescing_needs_threshold_and_time() {
    let on = InterruptCoalescing::new().with_thr(7).with_time(2);
    assert_eq!((on.threshold(), on.is_on()), (8, true));
    assert!(!on.with_time(0).is_on() && !on.with_thr(0).is_on());
}

#[test]
fn host_behavior_is_a_page() {
    let behavior = HostBehavior { acre: 1, ..HostBehavior::default() };
    let read = HostBehavior::from_page(behavior.as_page()).expect("it is whole");
    assert_eq!((read, behavior.as_page()[0], HostBehavior::LEN), (behavior, 1, 512));
}

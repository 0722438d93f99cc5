use proptest::prelude::*;

use super::*;

proptest! {
    /// Every software queue has one hardware queue, both directions agree, none is idle, and the
    /// load is even.
    #[test]
    fn spread_is_total_and_even(software in 1usize..300, hardware in 1usize..300) {
        let map = QueueMap::new(software, hardware).unwrap();
        prop_assert_eq!(map.hardware_queues(), hardware.min(software));
        let sizes: Vec<_> = (0..map.hardware_queues()).map(|h| map.software_of(h).len()).collect();
        prop_assert_eq!(sizes.iter().sum::<usize>(), software);
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        for (h, &size) in sizes.iter().enumerate() {
            prop_assert!(map.software_of(h).all(|s| map.hardware_of(s) == h));
            prop_assert_eq!(map.is_shared(h), size > 1);
        }
    }
}

#[test]
fn enough_queues_map_one_to_one() {
    let map = QueueMap::new(4, 64).unwrap();
    assert!((0..4).all(|s| map.hardware_of(s) == s && !map.is_shared(s)));
    assert!(map.software_of(4).is_empty());
}

#[test]
fn no_queues_are_refused() {
    assert_eq!(QueueMap::new(0, 1), Err(MapError::Software(0)));
    assert_eq!(QueueMap::new(1, 65_536), Err(MapError::Hardware(65_536)));
}

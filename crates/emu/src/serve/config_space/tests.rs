use super::{BAR0, BAR4, ConfigSpace, DEVICE_CONTROL, EXPRESS, MSIX, MSIX_BYTES, PM};

fn read32(space: &ConfigSpace, at: usize) -> u32 {
    u32::from_le_bytes(space.read(at, 4).expect("in the space").try_into().expect("four bytes"))
}

#[test]
fn an_nvme_controller_with_three_capabilities() {
    let space = ConfigSpace::new(65, 0x4000);
    assert_eq!(read32(&space, 8) >> 8, 0x01_0802);
    let (mut at, mut found) = (read32(&space, 0x34) as usize & 0xff, Vec::new());
    while at != 0 {
        let word = read32(&space, at);
        found.push((at, word & 0xff));
        at = word as usize >> 8 & 0xff;
        assert!(found.len() < 10, "the list of capabilities is a circle");
    }
    assert_eq!(found, [(PM, 1), (MSIX, 0x11), (EXPRESS, 0x10)]);
    assert_eq!(read32(&space, MSIX) >> 16, 64);
    // Interrupt Pin is 0: QEMU disables BAR mappings while INTx is pending.
    assert_eq!(read32(&space, 0x3c) >> 8 & 0xff, 0);
}

#[test]
fn sizes_are_read_by_writing_ones() {
    let mut space = ConfigSpace::new(65, 0x4000);
    for (bar, bytes) in [(BAR0, 0x4000), (BAR4, MSIX_BYTES)] {
        space.write(bar, &[0xff; 8]);
        assert_eq!((read32(&space, bar), read32(&space, bar + 4)), (!(bytes - 1) | 4, u32::MAX));
        space.write(bar, &0xfeed_0000_8000_0000u64.to_le_bytes());
        assert_eq!((read32(&space, bar), read32(&space, bar + 4)), (0x8000_0004, 0xfeed_0000));
    }
    space.write(0x14 + 4, &[0xff; 8]);
    assert_eq!((read32(&space, 0x18), read32(&space, 0x1c)), (0, 0));
}

#[test]
fn what_is_read_only_stays() {
    let (mut space, before) = (ConfigSpace::new(65, 0x4000), ConfigSpace::new(65, 0x4000));
    for at in (0..64).chain(0x100..0x200) {
        assert!(!space.write(at, &[0xff]));
    }
    for at in [0, 8, 0x2c, 0x34, 0x100] {
        assert_eq!(read32(&space, at), read32(&before, at));
    }
    assert!(
        space.read(4093, 4).is_none()
            && space.read(4092, 4).is_some()
            && space.read(usize::MAX, 4).is_none()
    );
}

#[test]
fn one_bit_requests_function_reset() {
    let mut space = ConfigSpace::new(65, 0x4000);
    assert!(!space.write(DEVICE_CONTROL, &0x7fffu16.to_le_bytes()));
    assert!(space.write(DEVICE_CONTROL, &0x8000u16.to_le_bytes()));
    assert!(space.write(DEVICE_CONTROL + 1, &[0x80]));
    assert_eq!(read32(&space, DEVICE_CONTROL) & 0x8000, 0);
}

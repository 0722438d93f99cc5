use super::*;
use crate::PoolOptions;

fn pool() -> DmaPool {
    PoolOptions::default().open(4 << 20).expect("a pool")
}

#[test]
fn doorbells_keep_their_stride() {
    let pool = pool();
    for dstrd in [0, 1, 4, 9, 10, 15, 255] {
        let pages = pool.alloc_doorbells(dstrd).expect("memory");
        let count = (1024 >> dstrd.min(15)).max(1);
        let all: Vec<_> =
            (0..count).map(|n| pages.doorbell(n).expect("it lies in the page")).collect();
        assert!(
            pages.doorbell(count).is_none() && pages.doorbell(usize::MAX).is_none(),
            "DSTRD {dstrd}"
        );
        for (n, bell) in all.iter().enumerate() {
            assert_eq!((bell.value(), bell.event()), (Ok(0), Ok(0)));
            assert_eq!(
                (bell.set_value(n as u32 + 1), bell.set_event(n as u32 + 10_000)),
                (Ok(()), Ok(()))
            );
        }
        let wrong = all.iter().enumerate().find(|(n, bell)| {
            (bell.value(), bell.event()) != (Ok(*n as u32 + 1), Ok(*n as u32 + 10_000))
        });
        assert!(wrong.is_none(), "DSTRD {dstrd}: {wrong:?}");
        pages.clear();
        assert!(all.iter().all(|bell| (bell.value(), bell.event()) == (Ok(0), Ok(0))));
    }
}

#[test]
fn doorbell_pages_are_freed() {
    let pool = pool();
    let pages = pool.alloc_doorbells(0).expect("memory");
    let (doorbells, events) = pages.addrs();
    assert_eq!((doorbells % PAGE, events), (0, doorbells + PAGE));
    assert!(pool.sq(doorbells, 1).is_none() && pool.cq(events, 1).is_none());
    let user = pages.clone();
    drop(pages);
    assert_eq!(user.doorbell(0).expect("a doorbell").set_value(7), Ok(()));
    let next = pool.alloc_doorbells(0).expect("memory");
    assert_ne!(next.addrs(), user.addrs(), "the pages are in use");
    drop(user);
    let again = pool.alloc_doorbells(0).expect("memory");
    assert_eq!(again.addrs().0, doorbells);
    assert_eq!(again.doorbell(0).expect("a doorbell").value(), Ok(0), "they are zeroed each time");
}

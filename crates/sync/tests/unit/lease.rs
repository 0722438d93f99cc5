use super::*;

const KIND: u8 = 2;

#[test]
fn only_lent_pieces_are_used() {
    let mark = AtomicU8::new(PRIVATE);
    assert!(acquire(&mark, KIND).is_none());
    grant(&mark, KIND);
    assert!(acquire(&mark, KIND + 1).is_none(), "lent as another kind");
    let used = acquire(&mark, KIND).unwrap();
    assert_eq!((kind_of(&mark), try_acquire(&mark, KIND).err()), (KIND, Some(AcquireError::InUse)));
    drop(used);
    revoke(&mark);
    assert_eq!((kind_of(&mark), acquire(&mark, KIND).is_none()), (PRIVATE, true));
    // Repeating it changes nothing.
    revoke(&mark);
    assert_eq!(kind_of(&mark), PRIVATE);
}

#[test]
fn owner_regains_piece_after_use() {
    let mark = AtomicU8::new(PRIVATE);
    grant(&mark, KIND);
    let used = acquire(&mark, KIND).unwrap();
    assert!(!begin_revoke(&mark) && !try_finish_revoke(&mark) && acquire(&mark, KIND).is_none());
    drop(used);
    assert!(acquire(&mark, KIND).is_none() && kind_of(&mark) == PRIVATE, "it is being taken back");
    assert!(try_finish_revoke(&mark) && !try_finish_revoke(&mark));
    grant(&mark, KIND);
    assert!(acquire(&mark, KIND).is_some());
}

#[test]
fn owner_waits_for_the_user() {
    let (mark, done) = (AtomicU8::new(PRIVATE), std::sync::atomic::AtomicBool::new(false));
    grant(&mark, KIND);
    let used = try_acquire(&mark, KIND).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Long enough to catch an owner that does not wait; no effect on one that does.
            std::thread::sleep(std::time::Duration::from_millis(50));
            done.store(true, Relaxed);
            drop(used);
        });
        revoke(&mark);
        assert!(done.load(Relaxed), "the owner has the piece while a user has it");
    });
    assert_eq!(kind_of(&mark), PRIVATE);
}

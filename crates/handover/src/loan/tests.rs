use super::*;

const KIND: u8 = 2;

#[test]
fn what_is_lent_is_used_and_what_is_not_is_not() {
    let mark = AtomicU8::new(PRIVATE);
    assert!(enter(&mark, KIND).is_none());
    lend(&mark, KIND);
    assert!(enter(&mark, KIND + 1).is_none(), "lent as another kind");
    let used = enter(&mark, KIND).unwrap();
    assert_eq!((kind_of(&mark), try_end(&mark, KIND), try_enter(&mark, KIND).err()), (KIND, false, Some(Refused::Used)));
    drop(used);
    end(&mark, KIND);
    assert_eq!((kind_of(&mark), enter(&mark, KIND).is_none()), (PRIVATE, true));
    // Once more is as once.
    end(&mark, KIND);
    assert_eq!(kind_of(&mark), PRIVATE);
}

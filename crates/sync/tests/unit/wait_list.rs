use std::cell::{Cell, RefCell};

use super::*;

/// Queues with this many commands that wait each, and this many tags for all.
struct Queues {
    books: Vec<RefCell<u32>>,
    tags: Cell<u32>,
    /// The place's lock is busy.
    busy: Cell<bool>,
    served: RefCell<Vec<u8>>,
}

impl Queues {
    fn new(waiting: &[u32], tags: u32) -> (TagWaitList, Queues) {
        let line = TagWaitList::new();
        (0..waiting.len()).for_each(|queue| line.join(queue as u8));
        let books = waiting.iter().map(|&waiting| RefCell::new(waiting)).collect();
        (line, Queues { books, tags: Cell::new(tags), busy: Cell::new(false), served: RefCell::default() })
    }

    fn waiting(&self) -> Vec<u32> {
        self.books.iter().map(|book| *book.borrow()).collect()
    }
}

impl TagWaiters for Queues {
    type Book<'a> = std::cell::RefMut<'a, u32>;
    type Place = ();

    fn try_book(&self, queue: u8) -> Option<Self::Book<'_>> {
        self.books[usize::from(queue)].try_borrow_mut().ok()
    }

    fn post(&self, book: &mut Self::Book<'_>) -> Progress<()> {
        if self.busy.get() {
            return Progress::PutOff;
        }
        let posted = self.tags.get().min(**book);
        self.tags.set(self.tags.get() - posted);
        **book -= posted;
        if **book == 0 { Progress::All(()) } else { Progress::Some(()) }
    }

    fn served(&self, queue: u8, (): &()) {
        assert!(self.books[usize::from(queue)].try_borrow_mut().is_ok(), "its book is unlocked");
        self.served.borrow_mut().push(queue);
    }

    fn is_exhausted(&self, (): &()) -> Option<bool> {
        (!self.busy.get()).then_some(self.tags.get() == 0)
    }
}

#[test]
fn wait_list_serves_in_order() {
    let (line, queues) = Queues::new(&[2, 2, 1], 3);
    line.join(0);
    assert_eq!(line.returned(&queues), Some(true));
    assert_eq!((queues.waiting(), queues.served.take()), (vec![0, 1, 1], vec![0, 1]));
    assert!(!line.may_post(0) && line.may_post(1) && !line.may_post(2));
    queues.tags.set(9);
    assert_eq!(line.unlocked(&queues), Some(true));
    assert_eq!((queues.waiting(), queues.served.take()), (vec![0, 0, 0], vec![1, 2]));
    assert!(line.may_post(2) && !line.must_serve());
    assert_eq!((line.returned(&queues), line.unlocked(&queues)), (None, None));
}

#[test]
fn locked_queue_keeps_its_place() {
    let (line, queues) = Queues::new(&[1, 1], 2);
    let book = queues.books[0].borrow_mut();
    assert_eq!(line.returned(&queues), Some(true));
    drop(book);
    assert_eq!(queues.waiting(), [1, 0]);
    assert!(line.may_post(0) && !line.may_post(1));
}

#[test]
fn try_serve_may_leave_work() {
    let (line, queues) = Queues::new(&[1], 1);
    queues.busy.set(true);
    assert_eq!(line.returned(&queues), Some(false));
    assert_eq!(queues.waiting(), [1]);
    queues.busy.set(false);
    assert_eq!((line.returned(&queues), queues.waiting()), (Some(true), vec![0]));
}

#[test]
fn queue_joins_once_at_the_end() {
    let (line, queues) = Queues::new(&[1, 1], 0);
    line.join(0);
    assert!(line.must_serve() && line.may_post(0) && !line.may_post(1));
    queues.tags.set(1);
    assert_eq!((line.unlocked(&queues), queues.waiting()), (Some(true), vec![0, 1]));
    assert!(!line.may_post(0) && line.may_post(1));
    queues.tags.set(1);
    assert!(line.has_waiters());
    assert_eq!((line.unlocked(&queues), line.has_waiters()), (Some(true), false));
}

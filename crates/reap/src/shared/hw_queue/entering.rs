//! How a batch comes into a book, while the application's iterator runs and no lock of the hardware queue is held.

use units::Nanos;

use crate::error::Refused;
use crate::request::Request;
use crate::shared::book::{Claim, Requests};

/// Enters what the application's iterator yields, until one is refused. A function of its own, so that the book is known to be
/// nobody else's meanwhile: it saves four instructions a request.
#[inline(always)]
pub(super) fn enter(
    book: &mut Requests,
    now: Nanos,
    claim: Claim,
    requests: impl IntoIterator<Item = Request>,
    check: impl Fn(Request) -> (Result<(), Refused>, Request),
) -> Option<Box<(Refused, Request)>> {
    book.begin();
    for request in requests {
        let (checked, request) = check(request);
        if let Err(why) = checked {
            return Some(refusal(why, request));
        }
        // A request is taken apart on its way into the book, and laid down only where that has to grow.
        if let Err(request) = book.enter(request, claim, now)
            && let Some(request) = book.enter_growing(request, claim, now)
        {
            return Some(refusal(Refused::TooMany, request));
        }
    }
    None
}

/// Apart from the data path, and small on it.
#[cold]
fn refusal(why: Refused, request: Request) -> Box<(Refused, Request)> {
    Box::new((why, request))
}

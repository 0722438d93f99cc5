//! The links, one line each, and what each lacks.

use std::env;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::place::{Place, Stand};

/// What some links lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Opening for reading only.
    ReadOnly,
    /// A size that can change while the device is open.
    Resizing,
    /// Data that are still there when the device is opened again.
    Keeping,
}

use Feature::{Keeping, ReadOnly, Resizing};

/// A link, or a device of one that lacks what others have.
#[derive(Clone)]
pub struct Link {
    name: String,
    stand: Stand,
    /// More parameters of its URI.
    more: &'static str,
    lacks: Vec<(Feature, &'static str)>,
}

const IN_MEMORY: [(Feature, &str); 3] = [
    (ReadOnly, "embedded controllers have no `readonly=`"),
    (Resizing, "only paths of `multipath:` change their size (tests/stack/multipath.rs)"),
    (Keeping, "memory goes with the device"),
];

/// All of them: a link joins by a line here.
fn table() -> Vec<Link> {
    vec![
        Link::new("embedded", Stand::Memory, "", &IN_MEMORY),
        Link::new("embedded, no masks", Stand::Memory, "masks=no", &IN_MEMORY),
        Link::new(
            "embedded, no masks, no poll queues",
            Stand::Memory,
            "masks=no&queues=1",
            &IN_MEMORY,
        ),
        Link::new(
            "embedded, no masks, shared vectors",
            Stand::Memory,
            "masks=no&vectors=2",
            &IN_MEMORY,
        ),
        Link::new("embedded, late properties", Stand::Memory, "properties=late", &IN_MEMORY),
        Link::new("embedded, SGLs", Stand::Memory, "sgl=yes&masks=no", &IN_MEMORY),
        Link::new("embedded, over a file", Stand::Media, "", &IN_MEMORY[..2]),
        Link::new(
            "vfio-user, another process's controller",
            Stand::Served(""),
            "",
            &IN_MEMORY[..2],
        ),
        Link::new(
            "vfio-user, mapped doorbells",
            Stand::Served("&doorbells=mapped"),
            "",
            &IN_MEMORY[..2],
        ),
        Link::new(
            "vfio-user, doorbells in registers alone",
            Stand::Served(""),
            "shadow=no",
            &IN_MEMORY[..2],
        ),
        Link::new("vfio-user, SGLs", Stand::Served("&sgl=yes&fetch=mixed"), "", &IN_MEMORY[..2]),
        Link::new("vfio-user, shared vectors", Stand::Served(""), "vectors=2", &IN_MEMORY[..2]),
        Link::new("tcp, another process's controller", Stand::Tcp, "", &IN_MEMORY[..2]),
        Link::new("tcp, digests", Stand::Tcp, "hdr_digest=yes&data_digest=yes", &IN_MEMORY[..2]),
        Link::new("kernel, a file", Stand::File, "", &[]),
        Link::new("kernel, a file through the page cache", Stand::File, "buffered=yes", &[]),
        Link::new("kernel, blocks of 4 KiB", Stand::File, "lba=4096", &[]),
        Link::new("kernel, a loop device", Stand::Loop, "", &[]),
    ]
}

/// Names a device that stands in the place of the table.
const GIVEN: &str = "REAP_TEST_DEVICE";

fn links() -> Vec<Link> {
    match env::var(GIVEN) {
        Ok(uri) => {
            let more = [
                (Resizing, "a device that was given has its size"),
                (ReadOnly, "a drive on the bus has no `readonly=`"),
            ];
            let driven = uri.starts_with("pcie:") || uri.starts_with("vfio-user:");
            let lacks = if driven { &more[..] } else { &more[..1] };
            vec![Link::new(&uri, Stand::Given(uri.clone()), "", lacks)]
        }
        Err(_) => table(),
    }
}

impl Link {
    fn new(
        name: &str,
        stand: Stand,
        more: &'static str,
        lacks: &[(Feature, &'static str)],
    ) -> Link {
        Link { name: name.to_owned(), stand, more, lacks: lacks.to_vec() }
    }
}

/// Runs `test` on every link that has all of `needs`, and says which are left out, and why.
pub fn everywhere(needs: &[Feature], test: impl Fn(&Place)) {
    for link in links() {
        let lack = link.lacks.iter().find(|(feature, _)| needs.contains(feature));
        let place = match lack {
            Some((_, why)) => Err((*why).to_owned()),
            None => Place::new(&link.stand, link.more),
        };
        match place {
            Ok(place) => {
                println!("on {}", link.name);
                watched(&link.name, || test(&place));
            }
            Err(why) => skipped(format_args!("on {}: {why}", link.name)),
        }
    }
}

/// Says what is not tested here: past the harness, which keeps what is printed of tests that pass.
pub fn skipped(what: impl fmt::Display) {
    let thread = thread::current();
    _ = writeln!(std::io::stderr(), "SKIPPED: {} {what}", thread.name().unwrap_or("a test"));
}

/// What has not ended by then hangs, on a guest without hardware support and on a machine that many
/// share, too.
const PATIENCE: Duration = Duration::from_secs(600);

/// Ends the process with a word where `work` hangs: a thread that hangs cannot be ended otherwise.
pub fn watched<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (tell, told) = mpsc::channel::<()>();
    let name = format!("{} on {what}", thread::current().name().unwrap_or("a test"));
    let dog = thread::spawn(move || {
        if told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            _ = writeln!(std::io::stderr(), "HANGS: {name} has not ended after {PATIENCE:?}");
            std::process::abort();
        }
    });
    let ended = catch_unwind(AssertUnwindSafe(work));
    drop(tell);
    _ = dog.join();
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

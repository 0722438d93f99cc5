//! PRP entries and lists, as a hostile host writes them, and as this one's own driver does.

use nvme::prp::{Dptr, PageSize, Segment, Walker, build, list_len};

use crate::source::Source;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let page = PageSize::from_mps(source.u8() % 5);
    let (prp1, prp2, len) = (source.u64(8), source.u64(8), source.any_size() % (1 << 22));
    round_trip(page, prp1, len);
    let lists = source.rest();
    let Ok(mut walker) = Walker::new(Dptr { prp1, prp2 }, len, page) else { return };
    let (mut found, mut fetches) = (0, 0u64);
    let fetch = |addr: u64, into: &mut [u8]| {
        assert!(addr % page.bytes() + into.len() as u64 <= page.bytes(), "a fetch crosses a page");
        fetches += 1;
        // Where the lists lie is of no matter: what is read at an address is always the same.
        for (at, byte) in into.iter_mut().enumerate() {
            let at = (addr as usize).wrapping_add(at) % lists.len().max(1);
            *byte = lists.get(at).copied().unwrap_or_default();
        }
        if lists.is_empty() { Err(()) } else { Ok(()) }
    };
    let mut fetch = fetch;
    while let Ok(Some(segment)) = walker.next(&mut fetch) {
        assert!(segment.len > 0);
        found += segment.len;
        assert!(found <= len, "more than the command's data");
    }
    assert!(fetches <= len.div_ceil(page.bytes()) * 2 + 2, "{fetches} fetches for {len} bytes");
}

/// What the driver builds, the controller walks.
fn round_trip(page: PageSize, addr: u64, len: u64) {
    let list = Segment { addr: 1 << 40, len: list_len(len, page) };
    let mut entries = std::collections::HashMap::new();
    let buffer = Segment { addr: addr % (1 << 39) & !3, len };
    let Ok(dptr) = build(buffer, page, list, |addr, entry| _ = entries.insert(addr, entry)) else {
        return assert_eq!(len, 0);
    };
    let mut walker = Walker::new(dptr, len, page).expect("the driver's PRPs");
    let mut next = buffer.addr;
    let fetch = |addr: u64, into: &mut [u8]| {
        for (n, word) in into.chunks_mut(8).enumerate() {
            let entry: &u64 = entries.get(&(addr + n as u64 * 8)).ok_or(())?;
            word.copy_from_slice(&entry.to_le_bytes());
        }
        Ok::<(), ()>(())
    };
    let mut fetch = fetch;
    while let Some(segment) = walker.next(&mut fetch).expect("every entry was stored") {
        assert_eq!(segment.addr, next);
        next += segment.len;
    }
    assert_eq!(next, buffer.addr + len);
}

use blkmq::Splitter;
use hw::DmaPool;
use nvme::Nsid;

use super::*;

#[test]
fn what_cannot_be_is_refused() {
    let pool = DmaPool::new(8 << 20).unwrap();
    let ns = Namespace::new(Nsid(1), Splitter::new(9, 8 * 512, 0).unwrap(), 1 << 20, 0);
    let buf = || pool.alloc(4096).unwrap();
    assert!(matches!(Request::read(&ns, 0, buf()).bytes(100).check(), Err(Refused::Length { .. })));
    assert!(matches!(Request::read(&ns, 0, buf()).bytes(8192).check(), Err(Refused::Length { .. })));
    assert!(matches!(Request::write(&ns, (1 << 20) - 1, buf()).check(), Err(Refused::OutOfRange { .. })));
    assert!(matches!(Request::read(&ns, u64::MAX, buf()).check(), Err(Refused::OutOfRange { .. })));
    assert!(Request::flush(&ns).check().is_ok());
}

use super::*;

#[test]
fn options_of_a_ring_are_foreign_to_other_engines() {
    let all = |name: &str| Engine { name: Some(name.into()), hipri: true, fixedbufs: true, registerfiles: true, sqthread_poll: true };
    assert_eq!(all("io_uring").foreign_options(), [""; 0]);
    assert_eq!(all("pvsync2").foreign_options(), ["fixedbufs", "registerfiles", "sqthread_poll"]);
    assert_eq!(all("libaio").foreign_options(), ["hipri", "fixedbufs", "registerfiles", "sqthread_poll"]);
    assert_eq!(Engine::default().foreign_options(), [""; 0]);
    assert!(all("psync").is_synchronous() && !all("libaio").is_synchronous());
    assert!(Engine::does_block_io("libaio") && !Engine::does_block_io("cpuio"));
}

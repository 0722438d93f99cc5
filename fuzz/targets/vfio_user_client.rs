#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::vfio_user_client::run(data));

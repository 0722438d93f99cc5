//! Drives' profiles as files, and a controller that has such a profile.

use emu::{Config, Mem, NamespaceConfig};
use sim::file::read_profile;

use crate::bus::{Bus, Host};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let profile = match read_profile("fuzz.toml", text) {
        Ok(profile) => profile,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let namespace = NamespaceConfig::mem(Mem::new(1 << 20, emu::Budget::new(4 << 20)), 512)
        .expect("whole blocks");
    let mut host = Host::new(Config::new(profile), vec![namespace], Bus::new(64 << 10));
    host.enable();
    host.create_queue(16);
    for lba in 0..12 {
        host.read(lba);
    }
    host.flush();
    host.run(200);
}

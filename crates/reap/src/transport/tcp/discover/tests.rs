use nvme::fabrics::DiscoveryEntry;
use nvme::{Page, Text};

use super::addresses_in;
use crate::TcpUri;

fn entry(port: &str, requirements: u8, security: u8) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::from_page(&[0; DiscoveryEntry::LEN]).unwrap();
    (entry.transport, entry.kind) = (DiscoveryEntry::TCP, DiscoveryEntry::NVM);
    (entry.requirements, entry.specific[0]) = (requirements, security);
    entry.address = Text::ascii("192.0.2.1");
    entry.service = Text::ascii(port);
    entry.subnqn = Text::nul_terminated("nqn.a");
    entry
}

#[test]
fn tls_addresses_are_left_out() {
    let uri = TcpUri::new("192.0.2.9".to_owned(), 8009, "nqn.a");
    let tls = [entry("1", 1, 0), entry("2", DiscoveryEntry::OPEN, 2)];
    let error = addresses_in(&tls, &uri).unwrap_err().to_string();
    assert!(error.contains("only with TLS"), "{error}");
    let [first, second] = tls;
    let found = addresses_in(&[first, entry("3", DiscoveryEntry::OPEN, 0), second], &uri).unwrap();
    assert_eq!(found.iter().map(|path| path.port).collect::<Vec<_>>(), [3]);
    let other = TcpUri { nqn: "nqn.b".to_owned(), ..uri };
    assert!(addresses_in(&tls, &other).unwrap_err().to_string().contains("no address of nqn.b"));
}

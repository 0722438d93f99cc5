use proptest::prelude::*;

use super::*;

#[test]
fn drives_are_named_by_address() {
    let uri: PcieUri = "pcie:0000:01:00.0?vectors=3".parse().unwrap();
    assert_eq!((uri.bdf.bus, uri.vectors), (1, Some(3)));
    assert_eq!(uri.to_string(), "pcie:0000:01:00.0?vectors=3");
    assert_eq!(
        "pcie:01:00.0?sgl=no&vectors=2".parse::<PcieUri>().unwrap().to_string(),
        "pcie:0000:01:00.0?vectors=2&sgl=no"
    );
    assert_eq!(
        "pcie:01:00.0?shadow=no".parse::<PcieUri>().unwrap().to_string(),
        "pcie:0000:01:00.0?shadow=no"
    );
    assert_eq!("pcie:c1:00.1".parse::<PcieUri>().unwrap().to_string(), "pcie:0000:c1:00.1");
}

#[test]
fn errors_name_their_column() {
    for (uri, column, what) in [
        ("pcie:nvme0", 6, "`nvme0` is not a PCI address; write it as `0000:01:00.0`"),
        ("pcie:", 6, "`` is not a PCI address"),
        ("pcie:01:00.0?vectors=0", 14, "expected a whole number from 1 to 2048"),
        ("pcie:01:00.0?vector=1", 14, "there is no parameter `vector`; did you mean `vectors`?"),
        ("pci:01:00.0", 1, "expected `pcie:BDF`"),
    ] {
        let error = uri.parse::<PcieUri>().unwrap_err();
        assert_eq!(error.column, column, "{uri}: {error}");
        assert!(error.what.starts_with(what) || error.what.contains(what), "{uri}: {error}");
    }
}

#[test]
fn absent_drives_are_reported() {
    // No machine has this many PCI domains.
    let error = crate::Device::open("pcie:fffffff0:00:00.0").err().unwrap().to_string();
    assert!(
        error.starts_with("pcie:fffffff0:00:00.0: there is no such PCI function here"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "pcie:[0-9a-f:.]{0,14}(\\?[a-z=0-9&]{0,14})?|.{0,20}") {
        match text.parse::<PcieUri>() {
            Ok(uri) => prop_assert_eq!(uri.to_string().parse(), Ok(uri)),
            Err(error) => prop_assert!(error.column <= text.len() + 1),
        }
    }
}

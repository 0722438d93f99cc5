use proptest::prelude::*;

use super::*;

#[test]
fn servers_are_named_by_socket() {
    let uri: VfioUserUri =
        "vfio-user:/run/a%3Fb.sock?vectors=3&hugepages=yes&trust=yes".parse().unwrap();
    assert_eq!(
        (uri.socket.to_str(), uri.vectors, uri.huge_pages, uri.trust),
        (Some("/run/a?b.sock"), Some(3), true, true)
    );
    assert_eq!(uri.to_string(), "vfio-user:/run/a%3Fb.sock?vectors=3&hugepages=yes&trust=yes");
    for (said, shadow) in [("?shadow=yes", Some(true)), ("?shadow=no", Some(false)), ("", None)] {
        let uri: VfioUserUri = format!("vfio-user:x{said}").parse().unwrap();
        assert_eq!((uri.shadow, uri.to_string()), (shadow, format!("vfio-user:x{said}")));
    }
    assert_eq!(
        "vfio-user:x?sgl=no".parse::<VfioUserUri>().unwrap().to_string(),
        "vfio-user:x?sgl=no"
    );
    assert_eq!(
        "vfio-user:x?sgl=yes&hugepages=no&trust=no".parse::<VfioUserUri>().unwrap().to_string(),
        "vfio-user:x"
    );
}

#[test]
fn errors_name_their_column() {
    for (uri, column, what) in [
        ("vfio-user:", 11, "a path must follow the colon"),
        ("vfio-user:/s?vectors=0", 14, "expected a whole number from 1 to 2048"),
        ("vfio-user:/s?vector=1", 14, "there is no parameter `vector`; did you mean `vectors`?"),
        ("vfio-user:/s?trust=maybe", 14, "expected `yes` or `no`"),
        ("vfio-user:/s?hugepages=yes", 14, "add `trust=yes`"),
        ("vfio:/s", 1, "expected `vfio-user:SOCKET`"),
    ] {
        let error = uri.parse::<VfioUserUri>().unwrap_err();
        assert_eq!(error.column, column, "{uri}: {error}");
        assert!(error.what.contains(what), "{uri}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "vfio-user:[a-z/%0-9?]{0,14}(\\?[a-z=0-9&]{0,14})?|.{0,20}") {
        match text.parse::<VfioUserUri>() {
            Ok(uri) => prop_assert_eq!(uri.to_string().parse(), Ok(uri)),
            Err(error) => prop_assert!(error.column <= text.len() + 1),
        }
    }
}

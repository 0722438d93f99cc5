use super::*;
use crate::rows::tests::sweep;

fn page_of(results: &Results) -> String {
    super::page_of(results, "2 CPUs", "reap compare", 1_800_000_000_000).unwrap()
}

/// The page's data, as a browser would read it.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn page_is_self_contained() {
    let page = page_of(&sweep());
    let data = data(&page);
    assert_eq!(data["results"]["rows"].as_array().unwrap().len(), 24);
    assert_eq!((&data["machine"], &data["command"]), (&"2 CPUs".into(), &"reap compare".into()));
    for link in ["src=", "href=", "@import", "url(http", "fetch(", "XMLHttpRequest("] {
        let own = STYLE.contains(link)
            || BODY.contains(link)
            || SCRIPTS[2..].iter().any(|script| script.contains(link));
        assert!(!own, "{link}");
    }
}

#[test]
fn external_text_is_escaped() {
    let mut results = sweep();
    let evil = "</script><script>alert('&')</script><!--";
    results.title = evil.into();
    results.rows[0].mode = evil.into();
    results.notes = vec![evil.into()];
    let page = page_of(&results);
    assert!(!page.contains("<script>alert"), "a name became a script");
    assert!(page.contains("<title>&lt;/script&gt;&lt;script&gt;alert('&amp;')"));
    let data = data(&page);
    assert_eq!((&data["title"], &data["results"]["rows"][0]["mode"]), (&evil.into(), &evil.into()));
    assert_eq!(data["notes"][0], evil);
}

#[test]
fn scripts_cannot_end_their_element() {
    for script in SCRIPTS {
        assert!(!script.to_ascii_lowercase().contains("</script"));
        assert!(!script.contains("<!--"));
    }
}

#[test]
fn the_command_line_can_be_pasted() {
    let words =
        ["/usr/bin/reap", "compare", "--device", "mem:1G?profile=optane&lba=512", "it's", ""];
    let line = command(words.into_iter().map(OsString::from));
    assert_eq!(line, "reap compare --device 'mem:1G?profile=optane&lba=512' 'it'\\''s' ''");
    // A name that is not UTF-8.
    let bytes = <OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"x\xff.html".to_vec());
    assert_eq!(command(["reap".into(), bytes].into_iter()), "reap 'x\u{fffd}.html'");
}

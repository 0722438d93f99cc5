use std::path::Path;

use clap::Command;

use super::*;

#[test]
fn pages_and_completions_are_made() {
    let pages = pages().unwrap();
    let text = |place: &str| {
        let (_, bytes) = pages
            .iter()
            .find(|(path, _)| path.as_path() == Path::new(place))
            .unwrap_or_else(|| panic!("{place} is missing"));
        String::from_utf8(bytes.clone()).unwrap()
    };
    for sub in Cli::command().get_subcommands().map(Command::get_name) {
        let page = text(&format!("share/man/man1/reap-{sub}.1"));
        assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{page}");
    }
    assert!(text("share/man/man1/reap.1").contains("compare"));
    assert!(text("share/man/man1/reap-run.1").contains("\\-\\-completion"));
    assert!(text("share/bash-completion/completions/reap").contains("--completion"));
    assert!(text("share/zsh/site-functions/_reap").starts_with("#compdef reap"));
    assert!(text("share/fish/vendor_completions.d/reap.fish").contains("complete -c reap"));
}

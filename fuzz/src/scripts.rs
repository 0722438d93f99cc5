//! Fault scripts.

use emu::{Change, Script};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Script>() {
        Ok(script) => assert_eq!(
            script.to_string().parse::<Script>().as_ref(),
            Ok(&script),
            "what it writes reads otherwise"
        ),
        Err(error) => assert!(
            text.lines().nth(error.line - 1).is_some(),
            "an error stands in a line of the text"
        ),
    }
    if let Ok(change) = text.parse::<Change>() {
        assert_eq!(
            change.to_string().parse::<Change>(),
            Ok(change),
            "what it writes reads otherwise"
        );
    }
}

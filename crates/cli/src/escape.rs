//! Text that a device, a file name or another user has chosen, made fit for a terminal.

/// The text with a question mark for each character that a terminal might obey: control characters, and those that turn the direction of
/// writing.
pub fn escape(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    text.chars().map(|c| if obeyed(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_become_question_marks() {
        assert_eq!(escape("S\u{1b}[31mX\u{9b}2J\r\n\u{202e}é"), "S?[31mX?2J???é");
    }

    proptest! {
        #[test]
        fn nothing_of_it_is_left(text in any::<String>()) {
            let shown = escape(&text);
            prop_assert_eq!(shown.chars().count(), text.chars().count());
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}

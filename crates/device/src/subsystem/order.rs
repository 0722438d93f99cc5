//! What a person asks of a controller that runs: a line of text.

use std::str::FromStr;

use super::change::Change;
use super::script::ScriptError;

/// A line of an operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `fault CHANGE`: something happens to the controller now, in the words of a [`crate::Script`].
    Fault(Change),
    /// `status`: how does it stand?
    Status,
}

impl FromStr for Order {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Order, ScriptError> {
        let trimmed = text.trim_start();
        let before = text.chars().count() - trimmed.chars().count();
        let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let wrong = |at: usize, what: String| ScriptError { line: 1, column: at + 1, what };
        match word {
            "fault" => {
                let into = (before + word.chars().count() + 1).min(text.chars().count());
                let placed = |error: ScriptError| ScriptError { column: error.column + into, ..error };
                rest.parse().map(Order::Fault).map_err(placed)
            }
            "status" if rest.trim().is_empty() => Ok(Order::Status),
            "status" => Err(wrong(before, "`status` stands alone".into())),
            _ => Err(wrong(before, format!("`{word}` is no order: there are `status` and `fault CHANGE`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_as_they_say() {
        assert_eq!(" fault  hold reads ".parse(), Ok(Order::Fault(Change::Hold(Some(units::Op::Read)))));
        assert_eq!("status\n".parse(), Ok(Order::Status));
    }

    #[test]
    fn mistakes_are_named_where_they_are() {
        let place = |text: &str| text.parse::<Order>().map_err(|error| (error.column, error.what)).expect_err(text);
        for (text, column, words) in [
            ("", 1, "`` is no order"),
            ("break it", 1, "`break` is no order: there are `status` and `fault CHANGE`"),
            ("  status please", 3, "stands alone"),
            ("fault", 6, "is missing"),
            ("fault gone", 7, "`gone` is no change"),
            ("fault hold trims", 12, "cannot be held"),
        ] {
            let (at, what) = place(text);
            assert!(at == column && what.contains(words), "{text}: column {at}, {what}");
        }
    }
}

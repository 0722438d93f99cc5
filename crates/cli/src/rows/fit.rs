//! Text that fits a line: of a table's variants the first that does.

use comfy_table::{ContentArrangement, Table};

/// The first of `variants` no line of which is longer than `width`. Where none fits, the cells of the last are broken, between words
/// where they have several. Nothing stands at the end of a line but what is to be read.
pub fn first(width: u16, variants: impl IntoIterator<Item = Table>) -> String {
    let mut last = None;
    for table in variants {
        let text = table.trim_fmt();
        if fits(&text, width) {
            return text;
        }
        last = Some(table);
    }
    let Some(mut table) = last else { return String::new() };
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.trim_fmt()
}

/// Whether no line of `text` is longer than `width`.
pub fn fits(text: &str, width: u16) -> bool {
    text.lines().all(|line| line.chars().count() <= usize::from(width))
}

/// Breaks a line at blanks.
pub fn wrap(line: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in line.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(words: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING).add_row(words);
        table
    }

    #[test]
    fn the_first_that_fits_is_taken() {
        let text = |width| first(width, [table(&["wide", "wider", "widest"]), table(&["wide", "wider"]), table(&["two words"])]);
        assert_eq!(text(40).split_whitespace().collect::<Vec<_>>(), ["wide", "wider", "widest"]);
        assert_eq!(text(14).split_whitespace().collect::<Vec<_>>(), ["wide", "wider"]);
        // None fits: words stay whole for as long as they can.
        assert_eq!(text(9).lines().map(str::trim).collect::<Vec<_>>(), ["two", "words"]);
        assert_eq!(first(80, []), "");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7), "one two\nthree\n");
        assert_eq!(wrap("incomprehensible", 7), "incomprehensible\n");
    }
}

//! What somebody who mistyped a name will have meant.

/// The name most like what was given, whatever its case, if one is like it: at most half of it, and at most four letters,
/// inserted, left out, replaced or swapped. None for more than 64 bytes: nobody mistypes a name at that length.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > 64 {
        return None;
    }
    let given = given.to_lowercase();
    let most = given.chars().count().div_ceil(2).min(4);
    let distances = names.into_iter().map(|name| (strsim::damerau_levenshtein(&given, name), name));
    distances.filter(|&(distance, _)| distance <= most).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const NAMES: [&str; 4] = ["dim", "interrupt", "poll", "irq-poll"];

    #[test]
    fn a_slip_is_forgiven() {
        for (given, meant) in [("polll", "poll"), ("opll", "poll"), ("INTERUPT", "interrupt"), ("irqpoll", "irq-poll"), ("di", "dim")] {
            assert_eq!(nearest(given, NAMES), Some(meant), "{given}");
        }
    }

    #[test]
    fn what_is_like_nothing_is_not_guessed_at() {
        let long = "poll".repeat(17);
        for given in ["", "x", "frobnicate", long.as_str()] {
            assert_eq!(nearest(given, NAMES), None, "{given}");
        }
        assert_eq!(nearest("poll", []), None);
    }
}

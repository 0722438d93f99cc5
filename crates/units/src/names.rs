//! What somebody who mistyped a name will have meant.

/// The name most like what was given, whatever its case, if one is like it: at most half of it, and at most four letters,
/// inserted, left out, replaced or swapped. None for more than 64 bytes: nobody mistypes a name at that length.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > 64 {
        return None;
    }
    let given = given.to_lowercase();
    let most = given.chars().count().div_ceil(2).min(4);
    let letters = tally(&given);
    // Most names are unlike it at first sight, and a distance is dear: a file of nothing but slips is compared with thousands.
    let near = names.into_iter().filter(|name| at_least(&letters, &tally(name)) <= most);
    let distances = near.map(|name| (strsim::damerau_levenshtein(&given, name), name));
    distances.filter(|&(distance, _)| distance <= most).min().map(|(_, name)| name)
}

/// How often a name has the letters of each class.
fn tally(name: &str) -> [u32; 32] {
    let mut tally = [0; 32];
    name.chars().for_each(|letter| tally[letter as usize % 32] += 1);
    tally
}

/// No distance is less: each insertion, omission or replacement mends one letter that is too many, and one that is missing. A swap mends
/// none.
fn at_least(one: &[u32; 32], other: &[u32; 32]) -> usize {
    let excess = |a: &[u32; 32], b: &[u32; 32]| a.iter().zip(b).map(|(a, b)| a.saturating_sub(*b) as usize).sum::<usize>();
    excess(one, other).max(excess(other, one))
}

#[cfg(test)]
mod tests {
    use super::{at_least, nearest, tally};

    const NAMES: [&str; 4] = ["dim", "interrupt", "poll", "irq-poll"];

    #[test]
    fn a_slip_is_forgiven() {
        for (given, meant) in [("polll", "poll"), ("opll", "poll"), ("INTERUPT", "interrupt"), ("irqpoll", "irq-poll"), ("di", "dim")] {
            assert_eq!(nearest(given, NAMES), Some(meant), "{given}");
        }
    }

    #[test]
    fn unlike_names_get_no_hint() {
        let long = "poll".repeat(17);
        for given in ["", "x", "frobnicate", long.as_str()] {
            assert_eq!(nearest(given, NAMES), None, "{given}");
        }
        assert_eq!(nearest("poll", []), None);
    }

    /// Who is left out at first sight would have been too far away.
    #[test]
    fn hints_respect_edit_distance() {
        let mut words: Vec<String> = NAMES.map(str::to_owned).into();
        words.extend(["", "a", "ab", "ba", "aab", "Poll", "llop", "pöll", "irq poll", "interrupts", "ppoollll"].map(str::to_owned));
        for (one, other) in words.iter().flat_map(|one| words.iter().map(move |other| (one, other))) {
            let distance = strsim::damerau_levenshtein(one, other);
            assert!(at_least(&tally(one), &tally(other)) <= distance, "{one}, {other}");
        }
        // It tells names apart all the same.
        assert_eq!(at_least(&tally("poll"), &tally("dim")), 4);
    }
}

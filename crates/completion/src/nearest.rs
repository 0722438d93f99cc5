//! Suggestions for misspelled names.

/// The name closest to `given`, ignoring case, if one is close enough: at most four edits (insert,
/// delete, replace, swap), and at most half of the length of `given`, rounded up. `None` for more
/// than 64 bytes: no name is that long, and the distance takes quadratic time.
pub fn nearest_name<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > 64 {
        return None;
    }
    let given = given.to_lowercase();
    let length = given.chars().count();
    let most = length.div_ceil(2).min(4);
    // Computing a distance takes time in proportion to the product of both lengths. The distance is
    // at least the difference of the lengths, so names whose length differs by more than `most` are
    // skipped first.
    let near = names.into_iter().filter(|name| name.chars().count().abs_diff(length) <= most);
    let distances = near.map(|name| (edits(&given, name), name));
    distances.filter(|&(distance, _)| distance <= most).min().map(|(_, name)| name)
}

/// The edit distance in which a swap of neighbours is one edit (optimal string alignment).
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests;

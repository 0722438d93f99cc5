//! Lists of CPUs, as Linux and fio write them.

use std::collections::BTreeSet;

/// The CPUs of a list such as `0-3,8,10-11`: ascending, no doubles.
///
/// # Errors
/// It is no such list: why, in words.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    /// More than any machine has.
    const MOST: u32 = 4096;
    let mut cpus = BTreeSet::new();
    let cpu = |text: &str| match text.trim().parse::<u32>() {
        Ok(n) if n < MOST => Ok(n),
        Ok(n) => Err(format!("CPU {n} is too large; the most is {}", MOST - 1)),
        Err(_) => Err(format!("'{}' is not the number of a CPU", text.trim())),
    };
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, _)) if first.trim().is_empty() => {
                return Err(format!("'{part}': nothing stands before the dash, which separates two values; neither may be negative"));
            }
            Some((first, last)) => {
                let (first, last) = (cpu(first)?, cpu(last)?);
                if first > last {
                    return Err(format!("'{part}' is not a range of CPUs: it ends before it starts"));
                }
                cpus.extend(first..=last);
            }
            None => {
                cpus.insert(cpu(part)?);
            }
        }
    }
    Ok(cpus.into_iter().collect())
}

/// The list of ascending `cpus`, as [`cpus`] reads it.
pub fn cpu_ranges(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|cpu, next| cpu.checked_add(1) == Some(*next));
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        single => single.iter().map(u32::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

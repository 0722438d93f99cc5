//! Which blocks were disturbed, pure: by gaps of the device's thread, or by what held job threads up.

use reap::Nanos;

use super::blocks::Sample;
use super::statistics;

/// By what blocks are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Gaps of the embedded device's thread.
    #[default]
    Gaps,
    /// How long job threads waited for a CPU, or their CPUs for the hypervisor, beyond what is usual in their mode.
    Away,
}

/// So much beyond the usual counts as one disturbance: half a per cent of a block.
pub const UNIT: Nanos = Nanos::from_micros(500);

/// By which rule these rounds are judged.
pub fn rule(rounds: &[Vec<Option<Sample>>]) -> Rule {
    if rounds.iter().flatten().flatten().any(|sample| sample.away.is_some()) { Rule::Away } else { Rule::Gaps }
}

/// How often each block was disturbed, by round and label; `None`: it was not run.
///
/// A thread that sleeps and wakes waits for its CPU each time for a moment, and the more often its mode wakes it the more. So a
/// block is held against the median of its own label.
pub fn disturbances(rounds: &[Vec<Option<Sample>>]) -> Vec<Vec<Option<u64>>> {
    let away = |sample: &Sample| sample.away.map(|away| away.0 as f64);
    let labels = rounds.iter().map(Vec::len).max().unwrap_or(0);
    let all = |label: usize| rounds.iter().filter_map(|round| away(round.get(label)?.as_ref()?)).collect::<Vec<f64>>();
    let usual: Vec<f64> = (0..labels).map(|label| statistics::median(&all(label)).unwrap_or(0.0)).collect();
    let of = |(label, sample): (usize, &Option<Sample>)| {
        let sample = sample.as_ref()?;
        Some(match away(sample) {
            Some(away) => ((away - usual[label]).max(0.0) / UNIT.0 as f64) as u64,
            None => sample.gaps,
        })
    };
    rounds.iter().map(|round| round.iter().enumerate().map(of).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(micros: u64) -> Option<Sample> {
        Some(Sample { away: Some(Nanos::from_micros(micros)), ..Sample::default() })
    }

    #[test]
    fn a_block_is_held_against_its_own_mode() {
        // The second mode wakes often, and waits for its CPU each time.
        let rounds = [vec![away(10), away(9_000)], vec![away(20), away(9_400)], vec![away(2_000), None], vec![away(20), away(30_000)]];
        assert_eq!(rule(&rounds), Rule::Away);
        assert_eq!(disturbances(&rounds), [[Some(0), Some(0)], [Some(0), Some(0)], [Some(3), None], [Some(0), Some(41)]]);
    }

    #[test]
    fn gaps_of_a_device_are_taken_as_they_are() {
        let rounds = [vec![Some(Sample { gaps: 3, ..Sample::default() }), None]];
        assert_eq!((rule(&rounds), disturbances(&rounds)), (Rule::Gaps, vec![vec![Some(3), None]]));
        assert_eq!((rule(&[]), disturbances(&[])), (Rule::Gaps, vec![]));
    }
}

//! The verdict of a comparison in at most three lines: the mode with the lowest [`SCORE`] in each
//! scene, and the modes that are faster or take less CPU. It uses the paired ratios and their
//! intervals; inconclusive scenes are left out.

use super::{CPU, Estimate, IOPS, P50, Results, Row, SCORE, Scene};
use crate::rows::table::{digits, percent};

/// Differences below this ratio are not reported, even if their interval excludes 1.
const LITTLE: f64 = 0.01;

impl Results {
    /// The verdict, in at most three lines; empty if nothing was compared.
    pub fn verdict(&self) -> Vec<String> {
        let best: Vec<(&Scene, &Row)> = self
            .scenes()
            .into_iter()
            .filter_map(|scene| Some((scene, self.best(scene)?)))
            .collect();
        let mut lines = match best[..] {
            [] => Vec::new(),
            [(scene, best)] if self.scenes().len() == 1 => self.of_one_scene(scene, best),
            _ => vec![self.of_scenes(&best)],
        };
        lines.extend(self.inconclusive.clone());
        lines
    }

    /// The recommended mode of a scene: that with the lowest [`SCORE`]. `None` if the scene is
    /// inconclusive or has only one mode.
    pub fn best(&self, scene: &Scene) -> Option<&Row> {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.scene == *scene).collect();
        let first = *rows.first()?;
        if rows.len() < 2 || first.extra.get("valid").is_some_and(|valid| valid == false) {
            return None;
        }
        let score = |row: &Row| match row.mode == first.mode {
            true => Some(1.0),
            false => self.ratio(scene, &first.mode, &row.mode, SCORE).map(|ratio| ratio.value),
        };
        let scores: Vec<(f64, &Row)> =
            rows.into_iter().filter_map(|row| Some((score(row)?, row))).collect();
        let best = scores.iter().min_by(|(a, _), (b, _)| a.total_cmp(b))?.1;
        // If only one mode has a score, there is nothing to choose from.
        (scores.len() > 1).then_some(best)
    }

    /// The verdict for a single scene.
    fn of_one_scene(&self, scene: &Scene, best: &Row) -> Vec<String> {
        let others: Vec<&Row> =
            self.rows.iter().filter(|row| row.scene == *scene && row.mode != best.mode).collect();
        let against = |row: &Row, figure: &str| self.ratio(scene, &best.mode, &row.mode, figure);
        // Speed is IOPS in a closed loop. At a given load all modes have the same IOPS, so it is
        // the reciprocal of the median latency.
        let speed = |row: &Row| match scene.load_pct >= 100.0 {
            true => against(row, IOPS),
            false => against(row, P50).map(|Estimate { value, interval }| Estimate {
                value: 1.0 / value,
                interval: interval.map(|[low, high]| [1.0 / high, 1.0 / low]),
            }),
        };
        let ends = |ratio: Estimate| ratio.interval.unwrap_or([ratio.value; 2]);
        let equal: Vec<&str> = others
            .iter()
            .filter(|row| against(row, SCORE).is_some_and(|r| ends(r)[0] <= 1.0))
            .map(|row| row.mode.as_str())
            .collect();
        // An interval that includes 1 does not prove a difference, so such modes are named as
        // equal.
        let mut first = format!("{}: {}.", self.subject, best.mode);
        if !equal.is_empty() {
            first.pop();
            first += &format!(", or {}: the intervals do not distinguish them.", equal.join(", "));
        }

        let by_value =
            |a: &(Estimate, &&Row), b: &(Estimate, &&Row)| a.0.value.total_cmp(&b.0.value);
        let faster = others
            .iter()
            .filter_map(|row| Some((speed(row)?, row)))
            .filter(|(r, _)| ends(*r)[0] > 1.0 && r.value > 1.0 + LITTLE);
        let cheaper = others
            .iter()
            .filter_map(|row| Some((against(row, CPU)?, row)))
            .filter(|(r, _)| ends(*r)[1] < 1.0 && r.value < 1.0 - LITTLE);
        let mut trades = Vec::new();
        if let Some((by, row)) = faster.max_by(by_value) {
            let cpu = against(row, CPU)
                .map_or(String::new(), |cpu| format!(" for {} × the CPU", digits(cpu.value)));
            let by = if by.value < 2.0 {
                format!("{:.0} % faster", (by.value - 1.0) * 100.0)
            } else {
                format!("{} × as fast", digits(by.value))
            };
            trades.push(format!("{} is {by}{cpu}", row.mode));
        }
        if let Some((cpu, row)) = cheaper.min_by(by_value) {
            let slow = match speed(row).map(|speed| speed.value) {
                Some(speed) if speed < 1.0 - LITTLE => {
                    format!(" and is {:.0} % slower", (1.0 - speed) * 100.0)
                }
                _ => String::new(),
            };
            trades.push(format!(
                "{} takes {:.0} % less CPU{slow}",
                row.mode,
                (1.0 - cpu.value) * 100.0
            ));
        }
        let second = if trades.is_empty() {
            "No other mode is faster or takes less CPU".to_owned()
        } else {
            trades.join("; ")
        };
        let mut lines = vec![first, second + "."];

        // SCORE uses the mean latency, so a mode with a long tail may win: print its p99 if another
        // mode's is clearly lower.
        let p99 = |row: &Row| row.latency.p99;
        let least = others.iter().filter_map(|row| Some((p99(row)?, row))).min_by(by_value);
        if let (Some(own), Some((least, row))) = (p99(best), least)
            && ends(own)[0] > ends(least)[1] * 1.1
        {
            lines.push(format!(
                "Its p99 is {} µs, that of {} {} µs.",
                digits(own.value / 1e3),
                row.mode,
                digits(least.value / 1e3)
            ));
        }
        lines
    }

    /// The verdict for several scenes: which modes are best in how many. If scenes differ in one
    /// parameter only, its values are named.
    fn of_scenes(&self, best: &[(&Scene, &Row)]) -> String {
        let all = self.scenes();
        let differ = |of: fn(&Scene) -> String| all.iter().any(|scene| of(scene) != of(all[0]));
        let load: fn(&Scene) -> String = |scene| percent(scene.load_pct);
        let depth: fn(&Scene) -> String = |scene| scene.qd.to_string();
        let background = differ(|scene| format!("{:?}", scene.background_pct));
        let place = match (differ(load), differ(depth), background) {
            (true, false, false) => Some(("load", load, " %")),
            (false, true, false) => Some(("depth", depth, "")),
            _ => None,
        };
        let mut won: Vec<(&str, Vec<&Scene>)> = Vec::new();
        for (scene, row) in best {
            match won.iter_mut().find(|(mode, _)| *mode == row.mode) {
                Some((_, scenes)) => scenes.push(scene),
                None => won.push((&row.mode, vec![scene])),
            }
        }
        won.sort_by_key(|(_, scenes)| std::cmp::Reverse(scenes.len()));
        let parts = won.iter().map(|(mode, scenes)| match place {
            Some((word, of, unit)) => {
                format!(
                    "{mode} at {word} {}{unit}",
                    scenes.iter().map(|scene| of(scene)).collect::<Vec<_>>().join(", ")
                )
            }
            None => format!("{mode} in {} of {} scenes", scenes.len(), all.len()),
        });
        format!("{}: {} (* in the table).", self.subject, parts.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests;

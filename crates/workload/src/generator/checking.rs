//! Verification: what is read back when, what is known of it, and the verdict.

use super::*;
use verify::Expected;

/// Bad blocks that are kept for the report; the others are counted.
const BAD_KEPT: usize = 16;

impl Generator {
    /// A pass begins.
    pub(super) fn begin_pass(&mut self, now: Nanos) {
        if let Some(pass) = &mut self.goal.pass {
            pass.began = now;
        }
        // What was written earlier is gone through as if it were written, and read.
        self.phase = if self.checks.only { Phase::Verify } else { Phase::Run };
        self.checks.left = u64::from(self.checks.only);
        if let Some(standing) = &mut self.checks.standing {
            standing.clear();
            if self.checks.only {
                self.recall_writes();
            }
        }
    }

    /// Goes through all that an earlier run wrote: which of it stands is known at its end.
    fn recall_writes(&mut self) {
        let Some(standing) = &mut self.checks.standing else { return };
        let (mut stream, mut bytes, mut ios, mut sequence) = (self.stream.clone(), self.bytes_left, self.ios_left, self.checks.sequence);
        while bytes > 0 && ios > 0 {
            let place = stream.next();
            (bytes, ios) = (bytes.saturating_sub(u64::from(place.len)), ios - 1);
            if place.op != Op::Read {
                standing.changes(&place, sequence);
            }
            sequence += u64::from(place.op == Op::Write);
        }
    }

    /// All is issued and has completed.
    pub(super) fn after_run(&mut self, now: Nanos) {
        match &self.goal.pass {
            Some(Pass { replay: Some(replay), writes, verified, ios, bytes, .. }) if writes > verified => {
                self.checks.left = writes - verified;
                self.checks.exact = replay.touches_once(*ios, *bytes);
                self.phase = Phase::Verify;
            }
            _ => self.after_pass(now),
        }
    }

    /// A pass is over, verification included: another one, or the end.
    pub(super) fn after_pass(&mut self, now: Nanos) {
        self.goal.passes_left = self.goal.passes_left.saturating_sub(1);
        let more = self.goal.passes_left > 0 || self.goal.time_based;
        if self.checks.count > 0 || !more || self.goal.pass.is_none() {
            return self.finish(now);
        }
        self.stream.start_pass();
        let replay = (self.checks.after_write && !self.checks.only && !self.checks.reads).then(|| self.stream.clone());
        self.goal.pass = Some(Pass { replay, first_sequence: self.checks.sequence, began: now, ios: 0, bytes: 0, writes: 0, verified: 0 });
        self.refill_goal();
        self.begin_pass(now);
    }

    /// The next write of the pass, as a read; `None` if there is none.
    pub(super) fn issue_check(&mut self, now: Nanos) -> Option<Next> {
        let (place, seed, sequence) = if self.checks.only { self.earlier_write()? } else { self.replayed_write()? };
        let slot = self.flight.occupy()?;
        self.note_issued(Place { op: Op::Read, ..place }, now);
        self.flight.set_extra(slot, Extra { intended: Nanos::MAX, sequence, check: true, seed, written: Nanos::ZERO });
        Some(io(slot, Place { op: Op::Read, ..place }))
    }

    /// A write of this run.
    fn replayed_write(&mut self) -> Option<(Place, u64, u64)> {
        let Some(Pass { first_sequence, verified, replay: Some(replay), .. }) = &mut self.goal.pass else {
            self.checks.left = 0;
            return None;
        };
        while self.checks.left > 0 {
            let place = replay.next();
            if place.op == Op::Write {
                let sequence = *first_sequence + *verified;
                *verified += 1;
                self.checks.left -= 1;
                if self.checks.standing.as_ref().is_none_or(|standing| standing.has(&place, sequence)) {
                    return Some((place, replay.data_seed(), sequence));
                }
            }
        }
        None
    }

    /// A write that an earlier run of the job made.
    fn earlier_write(&mut self) -> Option<(Place, u64, u64)> {
        while self.bytes_left > 0 && self.ios_left > 0 {
            let place = self.stream.next();
            self.bytes_left = self.bytes_left.saturating_sub(u64::from(place.len));
            self.ios_left -= 1;
            if place.op == Op::Write {
                let sequence = self.checks.sequence;
                self.checks.sequence += 1;
                if self.checks.standing.as_ref().is_none_or(|standing| standing.has(&place, sequence)) {
                    return Some((place, self.stream.data_seed(), sequence));
                }
            }
        }
        self.checks.left = 0;
        None
    }

    /// Checks the data of the read `io`, which completed at `now`.
    pub(super) fn check(&mut self, io: &Io, extra: Extra, now: Nanos, buf: &[u8]) {
        let checks = &mut self.checks;
        let Some(layout) = &checks.layout else { return };
        let own = !checks.only && !checks.reads;
        let began = self.goal.pass.as_ref().map_or(Nanos::ZERO, |pass| pass.began);
        let expected = Expected {
            seed: (checks.seeds && checks.exact).then_some(extra.seed),
            written: own.then_some((began, now)),
            thread: own.then_some(checks.thread),
            number: (checks.numbers && checks.exact).then_some(extra.sequence),
        };
        layout.check(io, expected, buf, |bad| {
            checks.count += 1;
            if checks.bad.len() < BAD_KEPT {
                checks.bad.push(bad);
            }
        });
        if checks.fatal && checks.count > 0 {
            self.stop();
        }
    }
}

//! What fio draws for each I/O of a job that verifies: whether it reads, how long it is, where it goes, the seed of its data.

use super::super::dice::{Purpose, Seeding, Tausworthe, repeatable_offsets};
use crate::job::{BlockSizes, Job, PerOp, RandomGenerator};
use units::Op;

/// fio's random numbers of one job thread.
#[derive(Clone, Debug)]
pub(in crate::generator) struct Mirror {
    seeding: Seeding,
    /// Each pass begins with the same numbers.
    starts_over: bool,
    number: u32,
    wide: bool,
    lfsr: bool,
    offset_seed: u64,
    offsets: Tausworthe,
    sizes: PerOp<Tausworthe>,
    /// `bssplit`, the rarest size first, as fio goes through them.
    splits: PerOp<Vec<(u64, u32)>>,
    mix: Tausworthe,
    data: Tausworthe,
    /// Seed of the data of the last I/O.
    seed: u64,
    /// Mixed: per cent of reads, what was chosen last, for how many issues of it that holds, and how many there were.
    read_percent: u32,
    current: Op,
    quota: u64,
    issued: PerOp<u64>,
}

impl Mirror {
    /// Thread `number` of all, `subjob` of its job; `entropy` seeds a job without `randrepeat`.
    pub fn new(job: &Job, number: u32, subjob: u32, entropy: u64) -> Mirror {
        let seeding = match (job.seed, job.repeatable) {
            (Some(seed), _) => Seeding::Given(seed),
            (None, true) => Seeding::Repeatable,
            (None, false) => Seeding::Entropy(entropy),
        };
        let wide = job.random_generator == RandomGenerator::Tausworthe64;
        let dice = |purpose, wide| Tausworthe::new(seeding.seed(purpose, number), wide);
        // fio lets randseed switch randrepeat off only after it has seeded the first thread of a job.
        let repeats = job.repeatable && (job.seed.is_none() || subjob == 0);
        let offset_seed = if repeats { repeatable_offsets(number) } else { seeding.seed(Purpose::Offsets, number) };
        Mirror {
            seeding,
            starts_over: job.repeatable && job.seed.is_none(),
            number,
            wide,
            lfsr: job.random_generator == RandomGenerator::Lfsr,
            offset_seed,
            offsets: Tausworthe::new(offset_seed, wide),
            sizes: PerOp::both(dice(Purpose::Sizes, wide)),
            splits: PerOp { read: rarest_first(&job.block.read), write: rarest_first(&job.block.write), trim: Vec::new() },
            mix: dice(Purpose::Mix, false),
            data: dice(Purpose::Data, wide),
            seed: 0,
            read_percent: job.read_percent.min(100),
            current: Op::Read,
            quota: 0,
            issued: PerOp::both(0),
        }
    }

    /// Whether another run of the same job draws the same, pass by pass.
    pub fn repeats(&self, passes: u64) -> bool {
        !matches!(self.seeding, Seeding::Entropy(_)) && (self.starts_over || passes == 1)
    }

    /// Whether the job asks for fio's shift register, whose order is not known here.
    pub fn is_lfsr(&self) -> bool {
        self.lfsr
    }

    /// A pass begins: repeatable jobs start over, others go on.
    pub fn start_pass(&mut self) {
        self.quota = 0;
        if self.starts_over {
            let dice = |purpose, wide| Tausworthe::new(self.seeding.seed(purpose, self.number), wide);
            self.offsets = Tausworthe::new(self.offset_seed, self.wide);
            self.sizes = PerOp::both(dice(Purpose::Sizes, self.wide));
            self.mix = dice(Purpose::Mix, false);
            self.data = dice(Purpose::Data, self.wide);
        }
    }

    /// Whether a mixed job reads or writes next. fio throws dice when it has issued enough of what it chose last.
    pub fn mixed(&mut self) -> Op {
        let before = *self.issued.get(self.current);
        if before >= self.quota {
            let percent = 1 + (100.0 * self.mix.fraction()) as u32;
            let next = if percent <= self.read_percent { Op::Read } else { Op::Write };
            if next != self.current {
                let others = if self.current == Op::Read { 100 - self.read_percent } else { self.read_percent };
                self.quota = before.saturating_mul(others.into()) / 100;
            }
            self.current = next;
        }
        *self.issued.get_mut(self.current) += 1;
        self.current
    }

    /// A block below `blocks`.
    pub fn block(&mut self, blocks: u64) -> u64 {
        (blocks as f64 * self.offsets.fraction()) as u64
    }

    /// A length of `op`'s `sizes`, at most `room` unless even the smallest is longer.
    pub fn size(&mut self, op: Op, sizes: &BlockSizes, room: u64) -> u64 {
        if sizes.min == sizes.max || room < sizes.min {
            return sizes.min;
        }
        let (dice, split) = (self.sizes.get_mut(op), self.splits.get(op));
        loop {
            let wanted = if split.is_empty() { sizes.min + (sizes.max as f64 * dice.fraction()) as u64 } else { share(split, dice, room) };
            let bytes = (wanted - wanted % sizes.min).min(sizes.max);
            if bytes <= room {
                return bytes;
            }
        }
    }

    /// Draws the seed of the next I/O's data.
    pub fn draw_seed(&mut self) {
        self.seed = self.data.seed();
    }

    /// The seed drawn last.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

fn rarest_first(sizes: &BlockSizes) -> Vec<(u64, u32)> {
    let mut split = sizes.split.clone();
    split.sort_by_key(|(_, share)| *share);
    split
}

/// A size of `bssplit`: the first that the dice allow and that fits, else the last.
fn share(split: &[(u64, u32)], dice: &mut Tausworthe, room: u64) -> u64 {
    let most = if matches!(dice, Tausworthe::Narrow(_)) { u64::from(u32::MAX) } else { u64::MAX };
    let (number, mut percent, mut size) = (dice.next(), 0, 0);
    for (bytes, share) in split.iter().filter(|(_, share)| *share > 0) {
        size = *bytes;
        percent += u64::from(*share);
        if number / percent <= most / 100 && size <= room {
            break;
        }
    }
    size
}

//! Cells, in which modes are compared. A cell is a machine (a price list: what each operation
//! costs), a device, and a load. [`Grid::known`] is the set of cells on which the constants of
//! `adaptive` were chosen.

use std::fmt;

use emu::{Profile, Service};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use sim::{Costs, file};

/// Loads of the known set, in per cent of the IOPS of `poll`.
pub const LOADS: [u32; 3] = [10, 50, 90];
/// Queue depths of closed loops of the known set.
pub const CLOSED_DEPTHS: [u32; 4] = [1, 8, 32, 128];

/// A price list: what the operations of a machine cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// The name in tables.
    pub name: String,
    /// The prices.
    pub costs: Costs,
}

/// The load on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Open loop: I/Os arrive as a Poisson process, at a share of the IOPS that `poll` reaches in a
    /// closed loop of the cell's queue depth.
    Open {
        /// The share, in per cent.
        load: u32,
    },
    /// Closed loop: always as many I/Os in flight as the queue depth.
    Closed,
    /// Closed loop in which the thread computes after each wait. I/Os in flight continue during that time.
    Think {
        /// Computing time.
        think: Nanos,
    },
    /// Closed loop of several threads on one device, each with a CPU and a hardware queue.
    Threads {
        /// Number of threads.
        threads: u16,
    },
    /// A job file of this repository.
    File(ShippedJob),
}

/// A job file in `jobs/`. Every set of cells has the same job files, [`JOBS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedJob {
    /// The name in cells.
    pub name: &'static str,
    /// The file's text.
    pub text: &'static str,
    /// Queue depth.
    pub depth: u32,
    /// Number of threads, which share one CPU.
    pub threads: u32,
}

/// The jobs of every set.
pub const JOBS: [ShippedJob; 4] = [
    ShippedJob {
        name: "mixed-sizes",
        text: include_str!("../../../../jobs/mixed-sizes.fio"),
        depth: 16,
        threads: 1,
    },
    ShippedJob {
        name: "sequential-128k",
        text: include_str!("../../../../jobs/sequential-128k.fio"),
        depth: 16,
        threads: 1,
    },
    ShippedJob {
        name: "four-threads",
        text: include_str!("../../../../jobs/four-threads.fio"),
        depth: 8,
        threads: 4,
    },
    ShippedJob {
        name: "log",
        text: include_str!("../../../../jobs/log.fio"),
        depth: 1,
        threads: 1,
    },
];

impl Kind {
    /// The family, by which tables group cells.
    pub fn family(self) -> &'static str {
        match self {
            Kind::Open { .. } => "open",
            Kind::Closed => "closed",
            Kind::Think { .. } => "think",
            Kind::Threads { .. } => "threads",
            Kind::File(job) => job.name,
        }
    }

    /// Whether I/Os arrive independently of completions.
    pub fn is_open(self) -> bool {
        matches!(self, Kind::Open { .. })
    }

    /// The load in per cent of the IOPS of `poll`; 100 for closed loops.
    pub fn load(self) -> u32 {
        if let Kind::Open { load } = self { load } else { 100 }
    }

    /// Threads that do I/O.
    pub fn threads(self) -> u32 {
        match self {
            Kind::Threads { threads } => threads.into(),
            Kind::File(job) => job.threads,
            _ => 1,
        }
    }
}

/// A combination of price list, device and load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The price list.
    pub costs: Prices,
    /// The device.
    pub profile: Profile,
    /// Queue depth per thread.
    pub depth: u32,
    /// The load.
    pub kind: Kind,
}

/// `vm tlc open qd=32 load=50`: words by which a cell is picked.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { costs, profile, depth, kind } = self;
        write!(f, "{} {} {} qd={depth}", costs.name, profile.name, kind.family())?;
        match kind {
            Kind::Open { load } => write!(f, " load={load}"),
            Kind::Think { think } => write!(f, " think={}us", think.0 / 1_000),
            Kind::Threads { threads } => write!(f, " threads={threads}"),
            Kind::Closed | Kind::File(_) => Ok(()),
        }
    }
}

impl Cell {
    /// Whether the cell's name has at least one word of each group, such as `[["vm"], ["qd=1",
    /// "qd=32"]]`.
    pub fn is_named(&self, groups: &[Vec<String>]) -> bool {
        let name = self.to_string();
        groups.iter().all(|group| group.iter().any(|word| name.split(' ').any(|own| own == word)))
    }
}

/// A set of cells, as the values of each parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Price lists.
    pub costs: Vec<Prices>,
    /// Devices.
    pub profiles: Vec<Profile>,
    /// Queue depths of open loops.
    pub depths: Vec<u32>,
    /// Loads of open loops, in per cent of the IOPS of `poll`.
    pub loads: Vec<u32>,
    /// Queue depths of closed loops.
    pub closed: Vec<u32>,
    /// Queue depths and computing times of loops that compute.
    pub thinks: Vec<(u32, Nanos)>,
    /// Queue depths and numbers of threads on one device.
    pub threads: Vec<(u32, u16)>,
    /// Job files.
    pub jobs: Vec<ShippedJob>,
}

impl Grid {
    /// The set on which the constants of `adaptive` were chosen: 204 cells.
    pub fn known() -> Grid {
        let (short, long) = (Nanos::from_micros(10), Nanos::from_micros(100));
        Grid {
            costs: file::COSTS.map(|(name, costs)| Prices { name: name.into(), costs }).to_vec(),
            profiles: vec![
                Profile::optane(),
                Profile::tlc(),
                Profile::bimodal(),
                drawn(1),
                drawn(2),
                drawn(3),
            ],
            depths: vec![1, 32],
            loads: LOADS.to_vec(),
            closed: CLOSED_DEPTHS.to_vec(),
            thinks: vec![(1, short), (8, long)],
            threads: vec![(8, 4)],
            jobs: JOBS.to_vec(),
        }
    }

    /// All cells; cells that differ only in the load are next to each other.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for costs in &self.costs {
            for profile in &self.profiles {
                cells.extend(self.kinds().map(|(depth, kind)| Cell {
                    costs: costs.clone(),
                    profile: profile.clone(),
                    depth,
                    kind,
                }));
            }
        }
        cells
    }

    /// Queue depth and load of all cells of one machine and device.
    fn kinds(&self) -> impl Iterator<Item = (u32, Kind)> {
        let open = self
            .depths
            .iter()
            .flat_map(|&depth| self.loads.iter().map(move |&load| (depth, Kind::Open { load })));
        let closed = self.closed.iter().map(|&depth| (depth, Kind::Closed));
        let thinks = self.thinks.iter().map(|&(depth, think)| (depth, Kind::Think { think }));
        let threads =
            self.threads.iter().map(|&(depth, threads)| (depth, Kind::Threads { threads }));
        let jobs = self.jobs.iter().map(|&job| (job.depth, Kind::File(job)));
        open.chain(closed).chain(thinks).chain(threads).chain(jobs)
    }
}

/// Whether a profile of this name is built in.
pub fn ships(name: &str) -> bool {
    Profile::NAMES.contains(&name)
}

/// A random profile: 5 to 82 µs, with jitter, and possibly a tail, which may come in runs.
pub fn drawn(seed: u64) -> Profile {
    let mut rng = SplitMix64::seed_from_u64(seed);
    let mut within = |low: u64, high: u64| low + rng.next_u64() % (high - low);
    // 5, 10, 20, 40 or 80 µs with the same probability, ORed with a random number below 5,000 ns.
    let base = 5_000u64 << within(0, 5) | within(0, 5_000);
    let read = Service {
        base: Nanos(base),
        jitter: Nanos(base * within(0, 30) / 100),
        tail_ppm: within(0, 20_000) as u32,
        tail: Nanos(base * within(2, 20)),
        tail_run: if within(0, 2) == 0 { 0 } else { 64 },
        ..Service::default()
    };
    let channels = 16u32 << within(0, 4);
    Profile { name: format!("drawn-{seed}"), read, write: read, channels, ..Profile::optane() }
}

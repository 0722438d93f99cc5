//! Completion modes: parsing, printing, and the constant [`Facts`] of each. A mode names a policy,
//! the thread that polls, how interrupts are delivered and what the device coalesces.
//!
//! ```text
//!   adaptive?delay-exponent=2        irq-poll+submit-check?weight=16&budget=64
//!   NAME     KEY            VALUE    NAME    (polls after each commit)
//! ```

use std::error::Error;
use std::fmt;
use std::mem::discriminant;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::PoisonError;

use crate::custom::{CustomId, ENTRIES, Entry, LONGEST_NAME};
use crate::{
    DelayExponent, ExponentError, Facts, MAX_WEIGHT, Nanos, Policy, PollLimits, Records,
    RegisterError, SleepCosts,
};

/// A completion mode, as written on the command line, in scenarios and in results:
/// `NAME[+submit-check][?KEY=VALUE[&KEY=VALUE…]]`, such as `irq-poll?weight=16&budget=64` or
/// `adaptive?delay-exponent=2`. [`Display`](fmt::Display) omits parameters that have their default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    preset: Preset,
    submit_check: bool,
}

/// The first part of a mode's name: how completions are found, with the mode's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Sleep until an interrupt, reap within a budget, repeat. The vector is never masked.
    Interrupt,
    /// As `interrupt`, but an interrupt thread for each vector reaps, and wakes the threads that
    /// submitted.
    Threaded,
    /// The interrupt handler masks the vector and schedules a poller with a weight (the contract of
    /// Linux's `lib/irq_poll.c`).
    IrqPoll(PollLimits),
    /// Posted MSIs: vectors are posted into one bitmap, and one notification stands for all of them
    /// until it is handled.
    Posted,
    /// Sleep for half of the mean service time, then spin.
    HybridMean,
    /// Sleep for half of the shortest recent service time, then spin.
    HybridMin,
    /// Stay masked while polls find entries; arm again after several empty polls, a timer's length
    /// apart (NAPI's IRQ suspension).
    Suspend,
    /// `interrupt`, with NVMe Interrupt Coalescing at a fixed setting.
    Coalesce,
    /// `interrupt`, with NVMe Interrupt Coalescing adjusted to the measured rates, as Linux's
    /// `net_dim`.
    Dim,
    /// `interrupt`, with NVMe Interrupt Coalescing set by the number of commands in flight.
    Vic,
    /// Spin: busy polling.
    Poll,
    /// Minimise C · Lⁿ: C is the CPU time of an I/O, L its latency.
    Adaptive(DelayExponent),
    /// The kernel polls while the thread waits in it (`IORING_SETUP_IOPOLL`).
    KernelIopoll,
    /// The same, after a sleep of half the usual time (`IORING_SETUP_HYBRID_IOPOLL`, Linux 6.13).
    KernelHybridIopoll,
    /// A kernel thread submits (`IORING_SETUP_SQPOLL`); completions interrupt.
    KernelSqpoll,
    /// A policy that the program has registered ([`crate::Mode::register`]).
    Custom(CustomId),
}

/// Which moderator sets Interrupt Coalescing. On a device that cannot coalesce, a mode with one
/// behaves as `interrupt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moderation {
    /// A fixed setting.
    Fixed,
    /// Increased step by step while rates improve ([`Preset::Dim`]).
    Dim,
    /// By the number of commands in flight ([`Preset::Vic`]).
    Vic,
}

/// Why a text is not a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeError {
    /// Unknown name.
    Unknown {
        /// The text as given.
        given: String,
        /// The mode with the most similar name.
        nearest: Option<Mode>,
    },
    /// One of [`Mode::KERNELS`], for a device that is not a `kernel:` device.
    Kernels {
        /// The mode.
        mode: Mode,
    },
    /// `+submit-check` on a mode that does not take it.
    NoSubmitCheck {
        /// The mode without `+submit-check`.
        mode: Mode,
    },
    /// An unknown parameter, or a value out of range.
    Parameter {
        /// The text as given.
        given: String,
        /// Column of the parameter, in characters from 1.
        column: usize,
        /// What is wrong, and what to write instead.
        what: String,
    },
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModeError::Unknown { given, nearest } => {
                write!(f, "there is no completion mode '{given}'; ")?;
                match nearest {
                    Some(mode) => write!(f, "did you mean '{mode}'? The")?,
                    None => f.write_str("the")?,
                }
                let names: Vec<String> = Mode::known().iter().map(Mode::to_string).collect();
                write!(f, " modes are {}", names.join(", "))
            }
            ModeError::Kernels { mode } => {
                write!(f, "'{mode}' is the kernel's own: only `kernel:` devices have it")
            }
            ModeError::NoSubmitCheck { mode } => write!(
                f,
                "'{mode}' does not take '+submit-check', only interrupt, threaded, irq-poll and posted do; ask for '{mode}' alone"
            ),
            ModeError::Parameter { given, column, what } => {
                write!(f, "'{given}', column {column}: {what}")
            }
        }
    }
}

impl Error for ModeError {}

const SUBMIT_CHECK: &str = "+submit-check";

/// Each built-in preset with its default parameters and its name; the kernel's modes last.
const PRESETS: [(Preset, &str); 15] = [
    (Preset::Interrupt, "interrupt"),
    (Preset::Threaded, "threaded"),
    (Preset::IrqPoll(PollLimits::DEFAULT), "irq-poll"),
    (Preset::Posted, "posted"),
    (Preset::HybridMean, "hybrid-mean"),
    (Preset::HybridMin, "hybrid-min"),
    (Preset::Suspend, "suspend"),
    (Preset::Coalesce, "coalesce"),
    (Preset::Dim, "dim"),
    (Preset::Vic, "vic"),
    (Preset::Poll, "poll"),
    (Preset::Adaptive(DelayExponent::DEFAULT), "adaptive"),
    (Preset::KernelIopoll, "kernel-iopoll"),
    (Preset::KernelHybridIopoll, "kernel-hybrid-iopoll"),
    (Preset::KernelSqpoll, "kernel-sqpoll"),
];

impl Mode {
    /// `interrupt`.
    pub const INTERRUPT: Mode = Mode::plain(Preset::Interrupt);
    /// `interrupt+submit-check`.
    pub const INTERRUPT_CHECKED: Mode = Mode::checked(Preset::Interrupt);
    /// `threaded`.
    pub const THREADED: Mode = Mode::plain(Preset::Threaded);
    /// `irq-poll`.
    pub const IRQ_POLL: Mode = Mode::plain(Preset::IrqPoll(PollLimits::DEFAULT));
    /// `irq-poll+submit-check`.
    pub const IRQ_POLL_CHECKED: Mode = Mode::checked(Preset::IrqPoll(PollLimits::DEFAULT));
    /// `posted`.
    pub const POSTED: Mode = Mode::plain(Preset::Posted);
    /// `hybrid-mean`.
    pub const HYBRID_MEAN: Mode = Mode::plain(Preset::HybridMean);
    /// `hybrid-min`.
    pub const HYBRID_MIN: Mode = Mode::plain(Preset::HybridMin);
    /// `suspend`.
    pub const SUSPEND: Mode = Mode::plain(Preset::Suspend);
    /// `coalesce`.
    pub const COALESCE: Mode = Mode::plain(Preset::Coalesce);
    /// `dim`.
    pub const DIM: Mode = Mode::plain(Preset::Dim);
    /// `vic`.
    pub const VIC: Mode = Mode::plain(Preset::Vic);
    /// `poll`.
    pub const POLL: Mode = Mode::plain(Preset::Poll);
    /// `adaptive`.
    pub const ADAPTIVE: Mode = Mode::plain(Preset::Adaptive(DelayExponent::DEFAULT));

    /// `kernel-iopoll`.
    pub const KERNEL_IOPOLL: Mode = Mode::plain(Preset::KernelIopoll);
    /// `kernel-hybrid-iopoll`.
    pub const KERNEL_HYBRID_IOPOLL: Mode = Mode::plain(Preset::KernelHybridIopoll);
    /// `kernel-sqpoll`.
    pub const KERNEL_SQPOLL: Mode = Mode::plain(Preset::KernelSqpoll);

    /// The kernel's own modes, for comparisons: only `kernel:` devices have them, and a queue keeps
    /// the one that its ring was created with.
    pub const KERNELS: [Mode; 3] =
        [Mode::KERNEL_IOPOLL, Mode::KERNEL_HYBRID_IOPOLL, Mode::KERNEL_SQPOLL];

    /// Every built-in mode with its default parameters, in the order of tables; without
    /// [`Mode::KERNELS`].
    pub const ALL: [Mode; 16] = [
        Mode::INTERRUPT,
        Mode::INTERRUPT_CHECKED,
        Mode::THREADED,
        Mode::checked(Preset::Threaded),
        Mode::IRQ_POLL,
        Mode::IRQ_POLL_CHECKED,
        Mode::POSTED,
        Mode::checked(Preset::Posted),
        Mode::HYBRID_MEAN,
        Mode::HYBRID_MIN,
        Mode::SUSPEND,
        Mode::COALESCE,
        Mode::DIM,
        Mode::VIC,
        Mode::POLL,
        Mode::ADAPTIVE,
    ];

    /// Registers a custom policy as a mode, which can then be named and switched to as a built-in
    /// one. `make` is called for each queue that switches to the mode. Register before opening a
    /// device, so that the name is known when its options are parsed. A registration lasts until
    /// the process ends.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub fn register(
        name: &str,
        facts: Facts,
        make: impl Fn(&SleepCosts) -> Box<dyn Policy> + Send + Sync + 'static,
    ) -> Result<Mode, RegisterError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return Err(RegisterError::Name(name.to_owned()));
        }
        // Neither delivery masks the vector.
        if facts.masks && (facts.drain_thread || facts.posted) {
            return Err(RegisterError::Facts(name.to_owned()));
        }
        // Checked and inserted under one lock, so that two threads cannot register the same name.
        let mut entries = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
        if PRESETS.iter().any(|(_, known)| *known == name)
            || entries.iter().any(|entry| entry.name == name)
        {
            return Err(RegisterError::Taken(name.to_owned()));
        }
        // Leaked, because a mode is `Copy` and may be stored anywhere, with no owner to free the
        // entry.
        entries.push(Box::leak(Box::new(Entry {
            name: name.to_owned(),
            facts,
            make: Box::new(make),
        })));
        Ok(Mode::plain(Preset::Custom(CustomId(entries.len() as u32 - 1))))
    }

    /// The modes made by [`Mode::register`], in that order.
    pub fn registered() -> Vec<Mode> {
        let entries = ENTRIES.read().unwrap_or_else(PoisonError::into_inner);
        (0..entries.len() as u32).map(|n| Mode::plain(Preset::Custom(CustomId(n)))).collect()
    }

    /// [`Mode::ALL`], followed by [`Mode::registered`].
    pub fn known() -> Vec<Mode> {
        Mode::ALL.into_iter().chain(Mode::registered()).collect()
    }

    const fn plain(preset: Preset) -> Mode {
        Mode { preset, submit_check: false }
    }

    const fn checked(preset: Preset) -> Mode {
        Mode { preset, submit_check: true }
    }

    /// `irq-poll` with these limits, clamped to a weight of 1 to 256, a budget of 1 to 65,535 and a
    /// time of 1 µs to 1 s in whole microseconds.
    pub fn irq_poll(limits: PollLimits) -> Mode {
        let PollLimits { weight, budget, time } = limits;
        let micros = (time.0 / 1_000).clamp(1, *MICROS.end());
        let (weight, budget) =
            (weight.clamp(1, MAX_WEIGHT), budget.clamp(1, *BUDGETS.end() as u32));
        Mode::plain(Preset::IrqPoll(PollLimits {
            weight,
            budget,
            time: Nanos::from_micros(micros),
        }))
    }

    /// `adaptive` with this exponent.
    pub const fn adaptive(n: DelayExponent) -> Mode {
        Mode::plain(Preset::Adaptive(n))
    }

    /// The same mode with a poll after each commit.
    ///
    /// # Errors
    /// [`ModeError::NoSubmitCheck`] for presets that do not take it.
    pub fn with_submit_check(self) -> Result<Mode, ModeError> {
        if self.takes_submit_check() {
            Ok(Mode::checked(self.preset))
        } else {
            Err(ModeError::NoSubmitCheck { mode: self })
        }
    }

    /// The preset's name, without `+submit-check` and parameters.
    fn name(self) -> &'static str {
        match self.preset {
            Preset::Custom(id) => &id.entry().name,
            preset => PRESETS[preset.index()].1,
        }
    }

    /// How completions are found.
    pub fn preset(self) -> Preset {
        self.preset
    }

    /// Whether the queue is polled after each commit.
    pub fn submit_check(self) -> bool {
        self.submit_check
    }

    /// Parses a mode, [`Mode::KERNELS`] included: for callers that may have a `kernel:` device.
    /// Others use [`FromStr`], which rejects the kernel's modes.
    ///
    /// # Errors
    /// See [`ModeError`].
    pub fn parse_any(given: &str) -> Result<Mode, ModeError> {
        Mode::parse(given, true)
    }

    fn parse(given: &str, kernels: bool) -> Result<Mode, ModeError> {
        let wrong = |at: usize, what: String| ModeError::Parameter {
            given: given.to_owned(),
            column: given[..at].chars().count() + 1,
            what,
        };
        let (name, query) =
            given.split_once('?').map_or((given, None), |(name, query)| (name, Some(query)));
        let (base, submit_check) =
            name.strip_suffix(SUBMIT_CHECK).map_or((name, false), |base| (base, true));
        let mut plain =
            Mode::known().into_iter().chain(Mode::KERNELS).filter(|mode| !mode.submit_check);
        let mut mode = match plain.find(|mode| mode.name() == base) {
            Some(mode) if submit_check => mode.with_submit_check()?,
            Some(mode) if mode.is_the_kernels() && !kernels => {
                return Err(ModeError::Kernels { mode });
            }
            Some(mode) => mode,
            // The syntax of earlier versions: the error names the new one.
            None if let Some(at) = name.find('@') => {
                return Err(wrong(
                    at,
                    "parameters follow '?': write adaptive?delay-exponent=2".to_owned(),
                ));
            }
            None => {
                return Err(ModeError::Unknown { given: given.to_owned(), nearest: nearest(name) });
            }
        };
        let Some(query) = query else { return Ok(mode) };
        let known = mode.preset.parameters();
        if known.is_empty() {
            return Err(wrong(
                name.len(),
                format!("'{base}' has no parameters: leave out '?' and what follows"),
            ));
        }
        let (mut at, mut set) = (name.len() + 1, Vec::new());
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                wrong(at, format!("a parameter is KEY=VALUE: '{base}' has {}", known.join(", ")))
            })?;
            // Otherwise the last value would win without notice.
            if set.contains(&key) {
                return Err(wrong(at, format!("'{key}' is set twice: leave one of them out")));
            }
            // A parameter of earlier versions: the error names its replacement.
            if key == "latency-price" && known.contains(&"delay-exponent") {
                return Err(wrong(
                    at,
                    "'latency-price' is no more: delay-exponent=N has n of C · Lⁿ, 3 unless given"
                        .to_owned(),
                ));
            }
            if !known.contains(&key) {
                return Err(wrong(
                    at,
                    format!("'{base}' has no parameter '{key}': it has {}", known.join(", ")),
                ));
            }
            mode.preset.set(key, value).map_err(|what| wrong(at + key.len() + 1, what))?;
            set.push(key);
            at += pair.len() + 1;
        }
        Ok(mode)
    }

    /// The limits of one poll, and of a round over all queues of a thread.
    pub fn limits(self) -> PollLimits {
        if let Preset::IrqPoll(limits) = self.preset { limits } else { PollLimits::DEFAULT }
    }

    /// The constant properties of the mode.
    pub fn facts(self) -> Facts {
        let facts = match self.preset {
            Preset::Custom(id) => id.entry().facts,
            Preset::Adaptive(_) => Facts {
                weighs_sleeps: true,
                checks_first: true,
                records: Records::Last,
                ..Facts::MASKED
            },
            Preset::HybridMean | Preset::HybridMin => Facts { spins: true, ..Facts::MASKED },
            // The rest keep no service times, so they get no completion records.
            Preset::Poll => {
                Facts { spins: true, checks_first: true, records: Records::None, ..Facts::MASKED }
            }
            Preset::IrqPoll(_) | Preset::Suspend => {
                Facts { records: Records::None, ..Facts::MASKED }
            }
            Preset::Threaded => {
                Facts { drain_thread: true, records: Records::None, ..Facts::UNMASKED }
            }
            Preset::Posted => Facts { posted: true, records: Records::None, ..Facts::UNMASKED },
            _ => Facts { records: Records::None, ..Facts::UNMASKED },
        };
        // `+submit-check` was proposed for queue pairs that serve several software queues
        // (linux-nvme, November 2019, "poll IO after batch submission"): the thread that has just
        // submitted is awake, a check of the phase bit costs one load, and an entry found by it
        // needs no interrupt.
        Facts { submit_check: facts.submit_check || self.submit_check, ..facts }
    }

    /// Which moderator sets Interrupt Coalescing; `None`: it is left off.
    pub fn moderation(self) -> Option<Moderation> {
        match self.preset {
            Preset::Coalesce => Some(Moderation::Fixed),
            Preset::Dim => Some(Moderation::Dim),
            Preset::Vic => Some(Moderation::Vic),
            _ => None,
        }
    }

    /// Whether it is one of [`Mode::KERNELS`].
    pub fn is_the_kernels(self) -> bool {
        matches!(
            self.preset,
            Preset::KernelIopoll | Preset::KernelHybridIopoll | Preset::KernelSqpoll
        )
    }

    /// Whether the mode takes `+submit-check`: not if its thread polls, or decides whether to,
    /// after each commit anyway.
    pub fn takes_submit_check(self) -> bool {
        matches!(
            self.preset,
            Preset::Interrupt | Preset::Threaded | Preset::IrqPoll(_) | Preset::Posted
        )
    }
}

/// Ranges of the parameters of `irq-poll`: weight, budget, and time in microseconds.
const WEIGHTS: RangeInclusive<u64> = 1..=MAX_WEIGHT as u64;
const BUDGETS: RangeInclusive<u64> = 1..=65_535;
const MICROS: RangeInclusive<u64> = 1..=1_000_000;

impl Preset {
    /// Index in [`PRESETS`]; `PRESETS.len()` for a registered policy.
    fn index(self) -> usize {
        PRESETS
            .iter()
            .position(|(known, _)| discriminant(known) == discriminant(&self))
            .unwrap_or(PRESETS.len())
    }

    /// The names of its parameters.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Preset::IrqPoll(_) => &["weight", "budget", "time"],
            Preset::Adaptive(_) => &["delay-exponent"],
            _ => &[],
        }
    }

    /// Sets the parameter `key`, which must be one of [`Preset::parameters`]. The error says which
    /// values are accepted.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let whole = |range: RangeInclusive<u64>| {
            let number = value.parse::<u64>().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| {
                format!(
                    "'{value}': {key} is a whole number from {} to {}",
                    range.start(),
                    range.end()
                )
            })
        };
        match self {
            Preset::IrqPoll(limits) if key == "weight" => limits.weight = whole(WEIGHTS)? as u32,
            Preset::IrqPoll(limits) if key == "budget" => limits.budget = whole(BUDGETS)? as u32,
            Preset::IrqPoll(limits) => {
                let time = value.parse().ok().filter(|time: &Nanos| {
                    time.0.is_multiple_of(1_000) && MICROS.contains(&(time.0 / 1_000))
                });
                limits.time = time.ok_or_else(|| format!("'{value}': {key} is whole microseconds from 1us to 1s, such as 500us or 2ms"))?;
            }
            Preset::Adaptive(n) => {
                *n = value.parse().map_err(|error: ExponentError| error.to_string())?
            }
            _ => {}
        }
        Ok(())
    }
}

/// Prints the mode with the parameters that differ from the default.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [self.name(), if self.submit_check { SUBMIT_CHECK } else { "" }].concat();
        let mut set = Vec::new();
        match self.preset {
            Preset::IrqPoll(PollLimits { weight, budget, time }) => {
                let PollLimits { weight: usual_weight, budget: usual_budget, time: usual_time } =
                    PollLimits::DEFAULT;
                set.extend((weight != usual_weight).then(|| format!("weight={weight}")));
                set.extend((budget != usual_budget).then(|| format!("budget={budget}")));
                set.extend((time != usual_time).then(|| format!("time={}us", time.0 / 1_000)));
            }
            Preset::Adaptive(n) => {
                set.extend((n != DelayExponent::DEFAULT).then(|| format!("delay-exponent={n}")))
            }
            _ => {}
        }
        if !set.is_empty() {
            text = format!("{text}?{}", set.join("&"));
        }
        f.pad(&text)
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(given: &str) -> Result<Mode, ModeError> {
        Mode::parse(given, false)
    }
}

/// A mode in one 64-bit word, for atomics that switch modes at run time. From bit 0:
/// `+submit-check` (1 bit), the index in `PRESETS` (4 bits; 15 is a registered policy), then the
/// parameters, or the number of the registered policy.
///
/// ```text
///   63                                     5  4     1    0
///   | parameters, or number of the policy   | preset | submit-check |
///         irq-poll: microseconds << 24 | budget << 8 | weight - 1
///         adaptive: thousandths of n
/// ```
impl From<Mode> for u64 {
    fn from(mode: Mode) -> u64 {
        let parameters = match mode.preset {
            Preset::Custom(id) => id.0.into(),
            Preset::Adaptive(n) => n.thousandths().into(),
            Preset::IrqPoll(limits) => {
                u64::from(limits.weight - 1)
                    | (u64::from(limits.budget) << 8)
                    | ((limits.time.0 / 1_000) << 24)
            }
            _ => 0,
        };
        (parameters << 5) | ((mode.preset.index() as u64) << 1) | u64::from(mode.submit_check)
    }
}

/// Decodes a mode; the error is the word itself, if it encodes none.
impl TryFrom<u64> for Mode {
    type Error = u64;

    fn try_from(word: u64) -> Result<Mode, u64> {
        let parameters = word >> 5;
        let preset = match PRESETS.get(word as usize >> 1 & 0xf) {
            None => Mode::registered().get(parameters as usize).ok_or(word)?.preset,
            Some((Preset::IrqPoll(_), _)) => {
                let (weight, budget, micros) =
                    ((parameters & 0xff) + 1, parameters >> 8 & 0xffff, parameters >> 24);
                // The word may be anything, so its ranges are checked as those of text are.
                if !BUDGETS.contains(&budget) || !MICROS.contains(&micros) {
                    return Err(word);
                }
                Preset::IrqPoll(PollLimits {
                    weight: weight as u32,
                    budget: budget as u32,
                    time: Nanos::from_micros(micros),
                })
            }
            Some((Preset::Adaptive(_), _)) => {
                Preset::Adaptive(DelayExponent::per_mille(parameters.try_into().map_err(|_| word)?))
            }
            Some((preset, _)) if parameters == 0 => *preset,
            Some(_) => return Err(word),
        };
        let mode = Mode::plain(preset);
        if word & 1 == 0 { Ok(mode) } else { mode.with_submit_check().map_err(|_| word) }
    }
}

fn nearest(given: &str) -> Option<Mode> {
    // Includes the kernel's modes: if the device has none, the next error says so.
    let known: Vec<(Mode, String)> = Mode::known()
        .into_iter()
        .chain(Mode::KERNELS)
        .map(|mode| (mode, mode.to_string()))
        .collect();
    let name = crate::nearest_name(given, known.iter().map(|(_, name)| name.as_str()))?;
    known.iter().find(|(_, known)| known == name).map(|&(mode, _)| mode)
}

/// What a thread that spins does while another thread is runnable on its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// It keeps spinning until the scheduler preempts it: at the end of its slice, or for a thread
    /// that wakes with clearly less run time. In the kernel host this is polled I/O, which spins
    /// until a reschedule is due; in the user host a poller that never yields.
    #[default]
    Spins,
    /// It polls once and yields the CPU, but stays runnable (`sched_yield`).
    Yields,
    /// Its policy is notified ([`crate::Seen::cpu_wanted`]), and naps for 50 µs.
    Naps,
}

impl Spin {
    /// Each with its name.
    pub const ALL: [(&str, Spin); 3] =
        [("spins", Spin::Spins), ("yields", Spin::Yields), ("naps", Spin::Naps)];

    /// Whether a policy of this mode is notified that another thread is runnable on its CPU.
    /// Policies that compute the cost of spinning always are.
    pub fn reports_cpu_wanted_in(self, mode: Mode) -> bool {
        self == Spin::Naps || !mode.facts().spins
    }

    /// Whether a thread that spins in this mode yields to runnable threads.
    pub fn yields_cpu(self, mode: Mode) -> bool {
        self == Spin::Yields && mode.facts().spins
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Spin::ALL.iter().find(|(_, spin)| spin == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Spin {
    type Err = String;

    fn from_str(name: &str) -> Result<Spin, String> {
        let names = Spin::ALL.map(|(name, _)| name);
        Spin::ALL.iter().find(|(known, _)| *known == name).map(|(_, spin)| *spin).ok_or_else(|| {
            let near = crate::nearest_name(name, names.iter().copied())
                .map_or(String::new(), |near| format!("did you mean '{near}'? "));
            format!(
                "there is no way of spinning called `{name}` ({near}known: {})",
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests;

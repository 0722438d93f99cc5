//! Completion modes by name: what a user asks for.

use std::fmt;
use std::mem::discriminant;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::PoisonError;

use units::Nanos;

use crate::custom::{CustomId, ENTRIES, Entry, LONGEST_NAME};
use crate::{
    Cycle, DelayExponent, ExponentError, Facts, MAX_WEIGHT, Policy, PollLimits, Records,
    RegisterError,
};

/// A completion mode, as written on the command line, in scenarios and in results:
/// `NAME[+submit-check][?KEY=VALUE[&KEY=VALUE…]]`, such as `irq-poll?weight=16&budget=64` or
/// `adaptive?delay-exponent=2`. What is printed leaves out the parameters that are the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    preset: Preset,
    submit_check: bool,
}

/// The first part of a mode's name: how completions are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Sleep on the notification, drain within a budget, arm. The notification is never masked.
    Interrupt,
    /// As `interrupt`, but a thread of the vector's own drains, and wakes those who submitted.
    Threaded,
    /// The notification masks itself and schedules a poller with a weight (the contract of Linux's
    /// `lib/irq_poll.c`).
    IrqPoll(PollLimits),
    /// Vectors post into one bitmap; one notification stands for all of them until it has been
    /// followed.
    Posted,
    /// Sleep for half of the observed mean service time, then spin.
    HybridMean,
    /// Sleep for half of the shortest service time seen lately, then spin.
    HybridMin,
    /// Stay masked while looks find entries; only after several in vain, each a timer apart, arm
    /// again.
    Suspend,
    /// `interrupt`, with the device's own coalescing at one fixed setting.
    Coalesce,
    /// `interrupt`, with the device's coalescing walked up and down a ladder after the rates seen.
    Dim,
    /// `interrupt`, with the device's coalescing set by how many commands are in flight.
    Vic,
    /// Spin.
    Poll,
    /// The action of least C · Lⁿ: CPU time of an I/O and its latency.
    Adaptive(DelayExponent),
    /// The kernel polls while the thread waits in it (`IORING_SETUP_IOPOLL`).
    KernelIopoll,
    /// The same after a sleep of half the usual time (`IORING_SETUP_HYBRID_IOPOLL`, Linux 6.13).
    KernelHybridIopoll,
    /// A thread of the kernel's submits (`IORING_SETUP_SQPOLL`); completions interrupt.
    KernelSqpoll,
    /// A policy that the program has registered ([`crate::Mode::register`]).
    Custom(CustomId),
}

/// Which moderator decides what the device holds back. A mode with any but [`Moderation::Asked`] is
/// nothing but `interrupt` on a device that cannot hold messages back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moderation {
    /// One setting.
    Fixed,
    /// One that climbs while it helps.
    Dim,
    /// By what is in flight.
    Vic,
    /// What the policies of the queues ask for, which do as well without.
    Asked,
}

/// Why a name is not a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// Nothing is called that.
    #[error("there is no completion mode '{given}'; {} modes are {}", meant(*nearest), names())]
    Unknown {
        /// What was asked for.
        given: String,
        /// The mode whose name is like it.
        nearest: Option<Mode>,
    },
    /// One of [`Mode::KERNELS`], where there is no kernel that could carry it out.
    #[error("'{mode}' is the kernel's own: only `kernel:` devices have it")]
    Kernels {
        /// The mode.
        mode: Mode,
    },
    /// A mode for which a look after each commit means nothing.
    #[error(
        "'{mode}' does not take '+submit-check', only interrupt, threaded, irq-poll and posted do; ask for '{mode}' alone"
    )]
    NoSubmitCheck {
        /// The mode without it.
        mode: Mode,
    },
    /// A parameter that the mode does not have, or a value that it does not take.
    #[error("'{given}', column {column}: {what}")]
    Parameter {
        /// What was asked for.
        given: String,
        /// Where the parameter stands, from 1.
        column: usize,
        /// What is wrong with it, and what to write instead.
        what: String,
    },
}

const SUBMIT_CHECK: &str = "+submit-check";

/// Each built-in preset with its default parameters, by its name; the kernel's own last.
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

    /// The kernel's own modes, to compare with: only `kernel:` devices have them, and a queue keeps
    /// the one that its ring was made for.
    pub const KERNELS: [Mode; 3] =
        [Mode::KERNEL_IOPOLL, Mode::KERNEL_HYBRID_IOPOLL, Mode::KERNEL_SQPOLL];

    /// Every mode of Reap's with its default parameters, in the order of tables.
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

    /// Gives a policy of the program's own a name: a mode from now on, wherever modes are named or
    /// switched. `make` is called for each queue that takes the mode on. Programs register before
    /// they open a device, so that every name is known by then.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub fn register(
        name: &str,
        facts: Facts,
        make: impl Fn(&Cycle) -> Box<dyn Policy> + Send + Sync + 'static,
    ) -> Result<Mode, RegisterError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return Err(RegisterError::Name(name.to_owned()));
        }
        if facts.masks && (facts.drain_thread || facts.posted) {
            return Err(RegisterError::Facts(name.to_owned()));
        }
        let mut entries = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
        if PRESETS.iter().any(|(_, known)| *known == name)
            || entries.iter().any(|entry| entry.name == name)
        {
            return Err(RegisterError::Taken(name.to_owned()));
        }
        entries.push(Box::leak(Box::new(Entry {
            name: name.to_owned(),
            facts,
            make: Box::new(make),
        })));
        Ok(Mode::plain(Preset::Custom(CustomId(entries.len() as u32 - 1))))
    }

    /// The modes that [`Mode::register`] has made, in that order.
    pub fn registered() -> Vec<Mode> {
        let entries = ENTRIES.read().unwrap_or_else(PoisonError::into_inner);
        (0..entries.len() as u32).map(|n| Mode::plain(Preset::Custom(CustomId(n)))).collect()
    }

    /// [`Mode::ALL`], and then [`Mode::registered`].
    pub fn known() -> Vec<Mode> {
        Mode::ALL.into_iter().chain(Mode::registered()).collect()
    }

    const fn plain(preset: Preset) -> Mode {
        Mode { preset, submit_check: false }
    }

    const fn checked(preset: Preset) -> Mode {
        Mode { preset, submit_check: true }
    }

    /// `irq-poll` with these limits: a weight of 1 to 256, a budget of 1 to 65,535 and whole
    /// microseconds up to a second; what is beyond is the nearest of these.
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

    /// The same mode with a look at the queue after each commit.
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

    /// As written on the command line, without `+submit-check`.
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

    /// Whether the queue is looked at after each commit.
    pub fn submit_check(self) -> bool {
        self.submit_check
    }

    /// The mode of this text, of Reap's or the kernel's: for a caller that may have a `kernel:`
    /// device. Other callers ask [`FromStr`].
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
            if set.contains(&key) {
                return Err(wrong(at, format!("'{key}' is set twice: leave one of them out")));
            }
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

    /// The limits of one poll, and of a round of polls.
    pub fn limits(self) -> PollLimits {
        if let Preset::IrqPoll(limits) = self.preset { limits } else { PollLimits::DEFAULT }
    }

    /// What is constant about it.
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
            // The others use no records.
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
        // submitted is awake anyway, a look at the phase costs one load, and what it finds needs no
        // interrupt.
        Facts { submit_check: facts.submit_check || self.submit_check, ..facts }
    }

    /// Who decides what the device holds back; `None`: it holds nothing back.
    pub fn moderation(self) -> Option<Moderation> {
        match self.preset {
            Preset::Coalesce => Some(Moderation::Fixed),
            Preset::Dim => Some(Moderation::Dim),
            Preset::Vic => Some(Moderation::Vic),
            _ => self.facts().holds.then_some(Moderation::Asked),
        }
    }

    /// Whether it is one of [`Mode::KERNELS`].
    pub fn is_the_kernels(self) -> bool {
        matches!(
            self.preset,
            Preset::KernelIopoll | Preset::KernelHybridIopoll | Preset::KernelSqpoll
        )
    }

    /// Whether `+submit-check` means anything: not where the thread looks, or decides about
    /// looking, after each commit.
    pub fn takes_submit_check(self) -> bool {
        matches!(
            self.preset,
            Preset::Interrupt | Preset::Threaded | Preset::IrqPoll(_) | Preset::Posted
        )
    }
}

/// Weights and budgets of `irq-poll`, and the microseconds of a round.
const WEIGHTS: RangeInclusive<u64> = 1..=MAX_WEIGHT as u64;
const BUDGETS: RangeInclusive<u64> = 1..=65_535;
const MICROS: RangeInclusive<u64> = 1..=1_000_000;

impl Preset {
    /// Its place in [`PRESETS`].
    fn index(self) -> usize {
        PRESETS
            .iter()
            .position(|(known, _)| discriminant(known) == discriminant(&self))
            .unwrap_or(PRESETS.len())
    }

    /// What its parameters are called.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Preset::IrqPoll(_) => &["weight", "budget", "time"],
            Preset::Adaptive(_) => &["delay-exponent"],
            _ => &[],
        }
    }

    /// Sets the parameter `key`, which it has. An error says what it takes.
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

/// With the parameters that are not the default.
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

/// A mode as a word, for cells that are switched at run time: from the lowest bit on
/// `+submit-check`, four bits of the preset's place in `PRESETS` (the last value: registered), and
/// the parameters, or the number of the registered one.
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

/// The mode of this word; the word itself is handed back if there is none.
impl TryFrom<u64> for Mode {
    type Error = u64;

    fn try_from(word: u64) -> Result<Mode, u64> {
        let parameters = word >> 5;
        let preset = match PRESETS.get(word as usize >> 1 & 0xf) {
            None => Mode::registered().get(parameters as usize).ok_or(word)?.preset,
            Some((Preset::IrqPoll(_), _)) => {
                let (weight, budget, micros) =
                    ((parameters & 0xff) + 1, parameters >> 8 & 0xffff, parameters >> 24);
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
    // The kernel's own as well: where there is none, the next answer says so.
    let known: Vec<(Mode, String)> = Mode::known()
        .into_iter()
        .chain(Mode::KERNELS)
        .map(|mode| (mode, mode.to_string()))
        .collect();
    let name = units::nearest(given, known.iter().map(|(_, name)| name.as_str()))?;
    known.iter().find(|(_, known)| known == name).map(|&(mode, _)| mode)
}

fn meant(nearest: Option<Mode>) -> String {
    nearest.map_or_else(|| "the".to_owned(), |mode| format!("did you mean '{mode}'? The"))
}

fn names() -> String {
    Mode::known().iter().map(Mode::to_string).collect::<Vec<_>>().join(", ")
}

/// What a thread that spins for its completions does about other threads that are ready on its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Nothing: the scheduler takes the CPU when the slice is over, or when a thread wakes that has
    /// had clearly less. In the kernel host this is polled I/O that spins until a reschedule is
    /// due, and in the user host a poller that never gives way.
    #[default]
    Spins,
    /// It looks once, and gives the CPU to the next one; it stays ready (`sched_yield`).
    Yields,
    /// Its policy learns of it, and naps for 50 µs.
    Naps,
}

impl Spin {
    /// By name.
    pub const ALL: [(&str, Spin); 3] =
        [("spins", Spin::Spins), ("yields", Spin::Yields), ("naps", Spin::Naps)];

    /// Whether a policy of this mode learns that others want the CPU. Policies that weigh it learn it
    /// in any case.
    pub fn tells_wanted(self, mode: Mode) -> bool {
        self == Spin::Naps || !mode.facts().spins
    }

    /// Whether a thread that spins in this mode gives the CPU to others that are ready.
    pub fn gives_way(self, mode: Mode) -> bool {
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
            let near = units::nearest(name, names.iter().copied())
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

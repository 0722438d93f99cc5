//! Completion modes by name: what a user asks for.

use std::fmt;
use std::str::FromStr;
use std::sync::PoisonError;

use crate::custom::{CustomId, ENTRIES, Entry, LONGEST_NAME};
use crate::{CustomPolicy, Facts, RegisterError, Tuning};

/// A completion mode: a named preset, as written on the command line and in results.
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
    /// The notification masks itself and schedules a poller with a weight (the contract of Linux's `lib/irq_poll.c`).
    IrqPoll,
    /// Vectors post into one bitmap; one notification stands for all of them until it has been followed.
    Posted,
    /// Sleep for half of the observed mean service time, then spin.
    HybridMean,
    /// Sleep for half of the shortest service time seen lately, then spin.
    HybridMin,
    /// Stay masked while looks find entries; only after several in vain, each a timer apart, arm again.
    Suspend,
    /// `interrupt`, with the device's own coalescing at one fixed setting.
    Coalesce,
    /// `interrupt`, with the device's coalescing walked up and down a ladder after the rates seen.
    Dim,
    /// `interrupt`, with the device's coalescing set by how many commands are in flight.
    Vic,
    /// Spin.
    Poll,
    /// At each empty poll what costs least, CPU time and latency together.
    Adaptive,
    /// The kernel polls while the thread waits in it (`IORING_SETUP_IOPOLL`).
    KernelIopoll,
    /// The same after a sleep of half the usual time (`IORING_SETUP_HYBRID_IOPOLL`, Linux 6.13).
    KernelHybridIopoll,
    /// A thread of the kernel's submits (`IORING_SETUP_SQPOLL`); completions interrupt.
    KernelSqpoll,
    /// A policy that the program has registered ([`crate::Mode::register`]).
    Custom(CustomId),
}

/// Which moderator decides what the device holds back. A mode with any but [`Moderation::Asked`] is nothing but `interrupt` on a device
/// that cannot hold messages back.
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
    #[error("'{mode}' does not take '+submit-check', only interrupt, threaded, irq-poll and posted do; ask for '{mode}' alone")]
    NoSubmitCheck {
        /// The mode without it.
        mode: Mode,
    },
}

const SUBMIT_CHECK: &str = "+submit-check";

/// Each built-in preset by its name, the kernel's own last. A mode's word counts them, and then those of [`Mode::registered`].
const PRESETS: [(Preset, &str); 15] = [
    (Preset::Interrupt, "interrupt"),
    (Preset::Threaded, "threaded"),
    (Preset::IrqPoll, "irq-poll"),
    (Preset::Posted, "posted"),
    (Preset::HybridMean, "hybrid-mean"),
    (Preset::HybridMin, "hybrid-min"),
    (Preset::Suspend, "suspend"),
    (Preset::Coalesce, "coalesce"),
    (Preset::Dim, "dim"),
    (Preset::Vic, "vic"),
    (Preset::Poll, "poll"),
    (Preset::Adaptive, "adaptive"),
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
    pub const IRQ_POLL: Mode = Mode::plain(Preset::IrqPoll);
    /// `irq-poll+submit-check`.
    pub const IRQ_POLL_CHECKED: Mode = Mode::checked(Preset::IrqPoll);
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
    pub const ADAPTIVE: Mode = Mode::plain(Preset::Adaptive);

    /// `kernel-iopoll`.
    pub const KERNEL_IOPOLL: Mode = Mode::plain(Preset::KernelIopoll);
    /// `kernel-hybrid-iopoll`.
    pub const KERNEL_HYBRID_IOPOLL: Mode = Mode::plain(Preset::KernelHybridIopoll);
    /// `kernel-sqpoll`.
    pub const KERNEL_SQPOLL: Mode = Mode::plain(Preset::KernelSqpoll);

    /// The kernel's own modes, to compare with: only `kernel:` devices have them, and a queue keeps the one that its ring was made for.
    pub const KERNELS: [Mode; 3] = [Mode::KERNEL_IOPOLL, Mode::KERNEL_HYBRID_IOPOLL, Mode::KERNEL_SQPOLL];

    /// Every mode of Reap's, in the order of tables.
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

    /// Gives a policy of the program's own a name: a mode from now on, wherever modes are named or switched. `make` is called for
    /// each queue that takes the mode on. Programs register before they open a device, so that every name is known by then.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub fn register(
        name: &str,
        facts: Facts,
        make: impl Fn(&Tuning) -> Box<dyn CustomPolicy> + Send + Sync + 'static,
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
        if PRESETS.iter().any(|(_, known)| *known == name) || entries.iter().any(|entry| entry.name == name) {
            return Err(RegisterError::Taken(name.to_owned()));
        }
        entries.push(Box::leak(Box::new(Entry { name: name.to_owned(), facts, make: Box::new(make) })));
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

    /// The same mode with a look at the queue after each commit.
    ///
    /// # Errors
    /// [`ModeError::NoSubmitCheck`] for presets that do not take it.
    pub fn with_submit_check(self) -> Result<Mode, ModeError> {
        if self.takes_submit_check() { Ok(Mode::checked(self.preset)) } else { Err(ModeError::NoSubmitCheck { mode: self }) }
    }

    /// As written on the command line, without `+submit-check`.
    fn name(self) -> &'static str {
        match self.preset {
            Preset::Custom(id) => &id.entry().name,
            preset => PRESETS.iter().find(|(known, _)| *known == preset).map_or("", |(_, name)| name),
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

    /// The mode of this name, of Reap's or the kernel's: for a caller that may have a `kernel:` device. Other callers ask [`FromStr`].
    ///
    /// # Errors
    /// See [`ModeError`].
    pub fn parse_any(given: &str) -> Result<Mode, ModeError> {
        match given.parse() {
            Err(ModeError::Kernels { mode }) => Ok(mode),
            parsed => parsed,
        }
    }

    /// What is constant about it.
    pub fn facts(self) -> Facts {
        match self.preset {
            Preset::Threaded => Facts { drain_thread: true, ..Facts::UNMASKED },
            Preset::Posted => Facts { posted: true, ..Facts::UNMASKED },
            Preset::IrqPoll | Preset::Suspend => Facts::MASKED,
            Preset::HybridMean | Preset::HybridMin | Preset::Poll => Facts { spins: true, ..Facts::MASKED },
            Preset::Adaptive => Facts { holds: true, weighs_sleeps: true, ..Facts::MASKED },
            Preset::Custom(id) => id.entry().facts,
            _ => Facts::UNMASKED,
        }
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
        matches!(self.preset, Preset::KernelIopoll | Preset::KernelHybridIopoll | Preset::KernelSqpoll)
    }

    /// Whether `+submit-check` means anything: not where the thread looks, or decides about looking, after each commit.
    pub fn takes_submit_check(self) -> bool {
        matches!(self.preset, Preset::Interrupt | Preset::Threaded | Preset::IrqPoll | Preset::Posted)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&[self.name(), if self.submit_check { SUBMIT_CHECK } else { "" }].concat())
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(given: &str) -> Result<Mode, ModeError> {
        let (base, submit_check) = given.strip_suffix(SUBMIT_CHECK).map_or((given, false), |base| (base, true));
        let mut plain = Mode::known().into_iter().chain(Mode::KERNELS).filter(|mode| !mode.submit_check);
        match plain.find(|mode| mode.name() == base) {
            Some(mode) if submit_check => mode.with_submit_check(),
            Some(mode) if mode.is_the_kernels() => Err(ModeError::Kernels { mode }),
            Some(mode) => Ok(mode),
            None => Err(ModeError::Unknown { given: given.to_owned(), nearest: nearest(given) }),
        }
    }
}

/// A mode as a word, for cells that are switched at run time.
impl From<Mode> for u32 {
    fn from(mode: Mode) -> u32 {
        let preset = match mode.preset {
            Preset::Custom(id) => PRESETS.len() as u32 + id.0,
            preset => PRESETS.iter().position(|(known, _)| *known == preset).unwrap_or(0) as u32,
        };
        preset << 1 | u32::from(mode.submit_check)
    }
}

/// The mode of this word; the word itself is handed back if there is none.
impl TryFrom<u32> for Mode {
    type Error = u32;

    fn try_from(word: u32) -> Result<Mode, u32> {
        let at = word as usize >> 1;
        let built_in = PRESETS.get(at).map(|(preset, _)| *preset);
        let custom = || Mode::registered().get(at - PRESETS.len()).map(|mode| mode.preset);
        let mode = Mode::plain(built_in.or_else(custom).ok_or(word)?);
        if word & 1 == 0 { Ok(mode) } else { mode.with_submit_check().map_err(|_| word) }
    }
}

fn nearest(given: &str) -> Option<Mode> {
    // The kernel's own as well: where there is none, the next answer says so.
    let known: Vec<(Mode, String)> = Mode::known().into_iter().chain(Mode::KERNELS).map(|mode| (mode, mode.to_string())).collect();
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
    /// Nothing: the scheduler takes the CPU when the slice is over, or when a thread wakes that has had clearly less. In the kernel host this
    /// is polled I/O that spins until a reschedule is due, and in the user host a poller that never gives way.
    #[default]
    Spins,
    /// It looks once, and gives the CPU to the next one; it stays ready (`sched_yield`).
    Yields,
    /// It is told, and its policy naps for 50 µs.
    Naps,
}

impl Spin {
    /// By name.
    pub const ALL: [(&str, Spin); 3] = [("spins", Spin::Spins), ("yields", Spin::Yields), ("naps", Spin::Naps)];

    /// Whether a policy of this mode is told that others want the CPU. Rules that weigh it are told in any case.
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
            let near = units::nearest(name, names.iter().copied()).map_or(String::new(), |near| format!("did you mean '{near}'? "));
            format!("there is no way of spinning called `{name}` ({near}known: {})", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests;

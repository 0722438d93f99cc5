//! Completion modes by name: what a user asks for.

use std::fmt;
use std::str::FromStr;

use crate::custom::{self, CustomId, Delivery, Placement};
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

/// Which moderator decides what the device holds back.
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

impl Moderation {
    /// Whether its mode is nothing but `interrupt` on a device that cannot hold messages back.
    pub fn is_all_there_is(self) -> bool {
        self != Moderation::Asked
    }
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
        if Mode::ALL.into_iter().chain(Mode::KERNELS).any(|mode| mode.to_string() == name) {
            return Err(RegisterError::Taken(name.to_owned()));
        }
        custom::register(name, facts, Box::new(make)).map(|id| Mode::plain(Preset::Custom(id)))
    }

    /// The modes that [`Mode::register`] has made, in that order.
    pub fn registered() -> Vec<Mode> {
        custom::registered().map(|id| Mode::plain(Preset::Custom(id))).collect()
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
            Preset::Interrupt => "interrupt",
            Preset::Threaded => "threaded",
            Preset::IrqPoll => "irq-poll",
            Preset::Posted => "posted",
            Preset::HybridMean => "hybrid-mean",
            Preset::HybridMin => "hybrid-min",
            Preset::Suspend => "suspend",
            Preset::Coalesce => "coalesce",
            Preset::Dim => "dim",
            Preset::Vic => "vic",
            Preset::Poll => "poll",
            Preset::Adaptive => "adaptive",
            Preset::KernelIopoll => "kernel-iopoll",
            Preset::KernelHybridIopoll => "kernel-hybrid-iopoll",
            Preset::KernelSqpoll => "kernel-sqpoll",
            Preset::Custom(id) => id.name(),
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

    /// Whether the notification is kept masked while the thread is awake. Where it is
    /// not, it is never masked.
    #[inline]
    pub fn masks(self) -> bool {
        match self.preset {
            Preset::IrqPoll | Preset::HybridMean | Preset::HybridMin | Preset::Suspend | Preset::Poll | Preset::Adaptive => true,
            Preset::Custom(id) => id.facts().masks,
            _ => false,
        }
    }

    /// Who looks.
    pub fn placement(self) -> Placement {
        match self.preset {
            Preset::Threaded => Placement::DrainThread,
            Preset::Custom(id) => id.facts().placement,
            _ => Placement::Own,
        }
    }

    /// Whether the notification only schedules a poller, which takes the entries later. A kernel has softirqs for that; where
    /// the thread that submits is the poller, it means nothing.
    pub fn schedules_poller(self) -> bool {
        self.preset == Preset::IrqPoll
    }

    /// Whether its thread spins by rule, not by weighing what that costs. What it does there when others want the CPU is the host's to
    /// say: a policy that is never told of them spins on.
    pub fn spins(self) -> bool {
        match self.preset {
            Preset::Poll | Preset::HybridMean | Preset::HybridMin => true,
            Preset::Custom(id) => id.facts().spins,
            _ => false,
        }
    }

    /// Whether its policy weighs what sleeping costs on this machine, so that this is measured before it begins.
    pub fn weighs_sleeps(self) -> bool {
        match self.preset {
            Preset::Adaptive => true,
            Preset::Custom(id) => id.facts().weighs_sleeps,
            _ => false,
        }
    }

    /// Whether a kernel may have its completions taken on another CPU, as [`crate::Placer`] says.
    pub fn asks_placer(self) -> bool {
        self.preset == Preset::Adaptive
    }

    /// How a message becomes a notification.
    pub fn delivery(self) -> Delivery {
        match self.preset {
            Preset::Posted => Delivery::Posted,
            Preset::Custom(id) => id.facts().delivery,
            _ => Delivery::PerVector,
        }
    }

    /// Who decides what the device holds back; `None`: it holds nothing back.
    pub fn moderation(self) -> Option<Moderation> {
        match self.preset {
            Preset::Coalesce => Some(Moderation::Fixed),
            Preset::Dim => Some(Moderation::Dim),
            Preset::Vic => Some(Moderation::Vic),
            Preset::Adaptive => Some(Moderation::Asked),
            Preset::Custom(id) if id.facts().holds => Some(Moderation::Asked),
            _ => None,
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
        if let Some(mode) = Mode::known().into_iter().find(|m| m.to_string() == given) {
            return Ok(mode);
        }
        if let Some(mode) = Mode::KERNELS.into_iter().find(|mode| mode.to_string() == given) {
            return Err(ModeError::Kernels { mode });
        }
        let plain = given.strip_suffix(SUBMIT_CHECK).and_then(|base| Mode::known().into_iter().find(|m| m.to_string() == base));
        match plain {
            Some(mode) => mode.with_submit_check(),
            None => Err(ModeError::Unknown { given: given.to_owned(), nearest: nearest(given) }),
        }
    }
}

/// From here on the words of [`Mode::registered`].
const CUSTOM: u32 = (Mode::ALL.len() + Mode::KERNELS.len()) as u32;

/// A mode as a word, for cells that are switched at run time: its position in [`Mode::ALL`], then [`Mode::KERNELS`], then [`Mode::registered`].
/// Asked once per batch, so written out rather than searched for; a test holds the two together.
impl From<Mode> for u32 {
    #[inline]
    fn from(mode: Mode) -> u32 {
        let first = match mode.preset {
            Preset::Interrupt => 0,
            Preset::Threaded => 2,
            Preset::IrqPoll => 4,
            Preset::Posted => 6,
            Preset::HybridMean => 8,
            Preset::HybridMin => 9,
            Preset::Suspend => 10,
            Preset::Coalesce => 11,
            Preset::Dim => 12,
            Preset::Vic => 13,
            Preset::Poll => 14,
            Preset::Adaptive => 15,
            Preset::KernelIopoll => 16,
            Preset::KernelHybridIopoll => 17,
            Preset::KernelSqpoll => 18,
            Preset::Custom(id) => CUSTOM + u32::from(id.0),
        };
        first + u32::from(mode.submit_check)
    }
}

/// The mode at this position of [`Mode::ALL`], then [`Mode::KERNELS`], then [`Mode::registered`]; the position itself is handed back if there is none.
impl TryFrom<u32> for Mode {
    type Error = u32;

    fn try_from(word: u32) -> Result<Mode, u32> {
        let at = word as usize;
        let built_in = Mode::ALL.get(at).or_else(|| Mode::KERNELS.get(at.checked_sub(Mode::ALL.len())?)).copied();
        let custom = || {
            let number = word.checked_sub(CUSTOM)?;
            custom::registered().find(|id| u32::from(id.0) == number).map(|id| Mode::plain(Preset::Custom(id)))
        };
        built_in.or_else(custom).ok_or(word)
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

#[cfg(test)]
mod tests;

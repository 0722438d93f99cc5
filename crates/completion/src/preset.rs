//! Presets: what each mode's name stands for, as facts that an executor acts on without knowing the names.

use crate::registry::CustomId;
use crate::{Delivery, Moderation, Placement};

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
    /// At each look in vain what costs least, CPU time and latency together.
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

impl Preset {
    /// As written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
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

    /// Whether the notification is kept masked while the thread is awake ([`Preset::stays_armed_alone`] apart). Where it is
    /// not, it is never masked.
    #[inline]
    pub fn masks(self) -> bool {
        match self {
            Preset::Interrupt | Preset::Threaded | Preset::Posted | Preset::Coalesce | Preset::Dim | Preset::Vic => false,
            Preset::KernelIopoll | Preset::KernelHybridIopoll | Preset::KernelSqpoll => false,
            Preset::IrqPoll | Preset::HybridMean | Preset::HybridMin | Preset::Suspend | Preset::Poll | Preset::Adaptive => true,
            Preset::Custom(id) => id.facts().masks,
        }
    }

    /// Whether a notification that has ended a sleep is left armed as long as at most one command is in flight. Its message
    /// is the one that ends the sleep for it, and no other can come meanwhile; so masking, arming and the look after it are
    /// spared, as in modes that never mask.
    #[inline]
    pub fn stays_armed_alone(self) -> bool {
        self == Preset::Adaptive
    }

    /// Who looks.
    pub fn placement(self) -> Placement {
        match self {
            Preset::Threaded => Placement::DrainThread,
            Preset::Custom(id) => id.facts().placement,
            _ => Placement::Own,
        }
    }

    /// Whether the notification only schedules a poller, which takes the entries later. A kernel has softirqs for that; where
    /// the thread that submits is the poller, it means nothing.
    pub fn schedules_poller(self) -> bool {
        self == Preset::IrqPoll
    }

    /// Whether its thread spins by rule, not by weighing what that costs. What it does there when others want the CPU is the host's to
    /// say: a policy that is never told of them spins on.
    pub fn spins(self) -> bool {
        match self {
            Preset::Poll | Preset::HybridMean | Preset::HybridMin => true,
            Preset::Custom(id) => id.facts().spins,
            _ => false,
        }
    }

    /// Whether its policy weighs what sleeping costs on this machine, so that this is measured before it begins.
    pub fn weighs_sleeps(self) -> bool {
        match self {
            Preset::Adaptive => true,
            Preset::Custom(id) => id.facts().weighs_sleeps,
            _ => false,
        }
    }

    /// Whether a kernel may have its completions taken on another CPU, as [`crate::Placer`] says.
    pub fn asks_placer(self) -> bool {
        self == Preset::Adaptive
    }

    /// How a message becomes a notification.
    pub fn delivery(self) -> Delivery {
        match self {
            Preset::Posted => Delivery::Posted,
            Preset::Custom(id) => id.facts().delivery,
            _ => Delivery::PerVector,
        }
    }

    /// Who decides what the device holds back; `None`: it holds nothing back.
    pub fn moderation(self) -> Option<Moderation> {
        match self {
            Preset::Coalesce => Some(Moderation::Fixed),
            Preset::Dim => Some(Moderation::Dim),
            Preset::Vic => Some(Moderation::Vic),
            Preset::Adaptive => Some(Moderation::Asked),
            Preset::Custom(id) if id.facts().holds => Some(Moderation::Asked),
            _ => None,
        }
    }

    /// Whether it is the kernel's own: its io_uring carries it out, and the thread only waits. To compare with, on `kernel:` devices.
    pub fn is_the_kernels(self) -> bool {
        matches!(self, Preset::KernelIopoll | Preset::KernelHybridIopoll | Preset::KernelSqpoll)
    }

    /// Whether `+submit-check` means anything: not where the thread looks, or decides about looking, after each commit.
    pub fn takes_submit_check(self) -> bool {
        matches!(self, Preset::Interrupt | Preset::Threaded | Preset::IrqPoll | Preset::Posted)
    }
}

//! The facts of a mode, besides when it looks: what an executor acts on without knowing a mode's name.

/// Who looks at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The thread that submits.
    Own,
    /// A thread for each vector, which leaves the entries in their owners' inboxes and wakes them.
    DrainThread,
}

/// How a message becomes a notification of the thread. Whether several queues have to share a vector is no choice of the
/// mode's: the device has as many vectors as it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Each vector notifies by itself.
    PerVector,
    /// Each vector sets its bit in one pending bitmap; a notification is sent only while none is outstanding.
    Posted,
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

/// The facts of a mode whose policy a program brings ([`crate::CustomPolicy`]). They hold for as long as the process runs.
///
/// It begins with one of [`Facts::MASKED`] and [`Facts::UNMASKED`]; the methods change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Whether the notification is masked while the thread is awake. Where it is not, it is never masked.
    pub masks: bool,
    /// Who looks.
    pub placement: Placement,
    /// How a message becomes a notification.
    pub delivery: Delivery,
    /// Whether the device holds messages back for [`crate::CustomPolicy::holds`].
    pub holds: bool,
    /// Whether the policy spins by rule: `--poll` then says whether it is told that others want its CPU.
    pub spins: bool,
    /// Whether it is told of each command that completes, and of a batch's class. Records cost some instructions a command.
    pub records: bool,
    /// Whether [`crate::Seen::cycle`] is measured for it. Measuring costs four system calls each time.
    pub weighs_sleeps: bool,
    /// Whether [`crate::CustomPolicy::submitted`] may ask for a look.
    pub checks: bool,
}

impl Facts {
    /// Masked while awake, looked at by its own thread, told of its records: what most policies want.
    pub const MASKED: Facts = Facts {
        masks: true,
        placement: Placement::Own,
        delivery: Delivery::PerVector,
        holds: false,
        spins: false,
        records: true,
        weighs_sleeps: false,
        checks: false,
    };

    /// The same, never masked: each completion sends its message, as in `interrupt`.
    pub const UNMASKED: Facts = Facts { masks: false, ..Facts::MASKED };

    /// Somebody else looks.
    pub const fn placed(self, placement: Placement) -> Facts {
        Facts { placement, ..self }
    }

    /// Messages arrive in another way.
    pub const fn delivered(self, delivery: Delivery) -> Facts {
        Facts { delivery, ..self }
    }

    /// The device holds messages back for [`crate::CustomPolicy::holds`].
    pub const fn holding(self) -> Facts {
        Facts { holds: true, ..self }
    }

    /// The policy spins by rule.
    pub const fn spinning(self) -> Facts {
        Facts { spins: true, ..self }
    }

    /// The policy is told of no record and no class.
    pub const fn without_records(self) -> Facts {
        Facts { records: false, ..self }
    }

    /// Sleeps are measured for the policy.
    pub const fn weighing_sleeps(self) -> Facts {
        Facts { weighs_sleeps: true, ..self }
    }

    /// The policy may look after a commit.
    pub const fn checking(self) -> Facts {
        Facts { checks: true, ..self }
    }

    /// Why no executor can carry them out together.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let elsewhere = self.placement == Placement::DrainThread || self.delivery == Delivery::Posted;
        (self.masks && elsewhere)
            .then_some("a notification that is posted, or a drain thread's, is never masked: begin with Facts::UNMASKED")
    }
}

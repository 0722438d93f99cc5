//! Property access with delayed, lost and repeated answers.

use std::cell::RefCell;
use std::rc::Rc;

use nvme::regs::{self, Csts};
use nvme::{Registers, Status};
use units::Nanos;

use super::controller::MemRegisters;
use crate::{Access, AccessPoll, Answer, Properties, Property, Ticket};

/// The fate of accesses. By default each is answered at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    pub seed: u64,
    /// The longest delay of an answer; zero: no delay.
    pub late: Nanos,
    /// Of 1000 accesses: not answered in time; refused; answered once more, long afterwards.
    pub lost: u64,
    pub refused: u64,
    pub echoed: u64,
    /// The n-th access has this fate.
    pub nth: Option<(usize, AccessFate)>,
    pub mutant: Option<Mutant>,
    /// The controller's function can be reset.
    pub resets_function: bool,
}

/// How a transport violates its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// It reuses one ticket.
    OneTicket,
    /// It reports a property as set before it sets it.
    Hasty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFate {
    Answered,
    Lost,
    Refused,
}

const STATUS: Access = Access::Get(Property::Csts);

/// Delay of a repeated answer: longer than the time-out of any access.
const ECHO: Nanos = Nanos::from_secs(3);

#[derive(Clone, Debug)]
pub struct Wire(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    registers: MemRegisters,
    plan: Plan,
    now: Nanos,
    rng: u64,
    under_way: Vec<UnderWay>,
    echoes: Vec<(UnderWay, Answer)>,
    asked: Vec<Access>,
    /// The CSTS that the host read last, if it has not written CC since.
    status: Csts,
    status_asked: u64,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    number: u64,
    ticket: Ticket,
    access: Access,
    due: Nanos,
    fate: AccessFate,
    /// The value, if it was carried out at once.
    value: Option<u64>,
}

impl Wire {
    pub fn new(registers: MemRegisters, plan: Plan) -> Wire {
        let (under_way, echoes, asked) = Default::default();
        let (now, rng, status) = (Nanos::ZERO, plan.seed, Csts::new());
        let state =
            State { registers, plan, now, rng, under_way, echoes, asked, status, status_asked: 0 };
        Wire(Rc::new(RefCell::new(state)))
    }

    /// The answers that have arrived.
    pub fn come(&self, now: Nanos) -> Vec<(Ticket, Answer)> {
        let state = &mut *self.0.borrow_mut();
        state.now = now;
        let due: Vec<_> =
            state.under_way.extract_if(.., |under_way| under_way.due <= now).collect();
        let mut come: Vec<_> =
            state.echoes.extract_if(.., |(under_way, _)| under_way.due <= now).collect();
        come.extend(
            due.into_iter().filter_map(|under_way| Some((under_way, state.arrive(under_way)?))),
        );
        come.iter().for_each(|(under_way, answer)| state.told(under_way, *answer));
        come.into_iter().map(|(under_way, answer)| (under_way.ticket, answer)).collect()
    }

    /// When the next answer arrives.
    pub fn next(&self) -> Nanos {
        let state = self.0.borrow();
        let all = state.under_way.iter().chain(state.echoes.iter().map(|(under_way, _)| under_way));
        all.map(|under_way| under_way.due).min().unwrap_or(Nanos::MAX)
    }

    /// All accesses so far.
    pub fn asked(&self) -> Vec<Access> {
        self.0.borrow().asked.clone()
    }

    pub fn set_plan(&self, plan: Plan) {
        self.0.borrow_mut().plan = plan;
    }

    /// The invariant: no command is posted before the host has read that the controller is ready
    /// and its settings are complete.
    pub fn assert_settled(&self) {
        let state = self.0.borrow();
        let unsettled =
            state.under_way.iter().find(|under_way| matches!(under_way.access, Access::Set(..)));
        assert!(unsettled.is_none(), "a command is posted before the answer: {unsettled:?}");
        assert!(
            state.status.rdy(),
            "a command is posted to a controller that was not said to be ready"
        );
    }
}

impl State {
    /// SplitMix64.
    fn roll(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.rng ^ self.rng >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn fate(&mut self) -> AccessFate {
        let thousand = self.roll() % 1000;
        match self.plan.nth {
            Some((nth, fate)) if nth + 1 == self.asked.len() => fate,
            _ if thousand < self.plan.lost => AccessFate::Lost,
            _ if thousand < self.plan.lost + self.plan.refused => AccessFate::Refused,
            _ => AccessFate::Answered,
        }
    }

    /// Completes an access. `None`: the host gets no answer.
    fn arrive(&mut self, under_way: UnderWay) -> Option<Answer> {
        let answer = match under_way.fate {
            AccessFate::Refused => Err(Status::INTERNAL_ERROR),
            AccessFate::Answered | AccessFate::Lost => {
                Ok(under_way.value.unwrap_or_else(|| under_way.access.carry_out(&self.registers)))
            }
        };
        if self.roll() % 1000 < self.plan.echoed {
            let due = self.now + Nanos(self.roll() % ECHO.0);
            self.echoes.push((UnderWay { due, ..under_way }, answer));
        }
        (under_way.fate != AccessFate::Lost).then_some(answer)
    }

    fn told(&mut self, under_way: &UnderWay, answer: Answer) {
        if let Ok(value) = answer
            && under_way.access == STATUS
            && under_way.number == self.status_asked
        {
            self.status = Csts::from_bits(value as u32);
        }
    }
}

impl Properties for Wire {
    fn reset_function(&self) -> bool {
        let state = self.0.borrow();
        if state.plan.resets_function {
            state.registers.write32(regs::CC, 0);
            state.registers.write32(regs::CSTS, 0);
        }
        state.plan.resets_function
    }

    fn ask(&self, access: Access) -> AccessPoll {
        let state = &mut *self.0.borrow_mut();
        state.asked.push(access);
        if matches!(access, Access::Set(Property::Cc, _)) {
            state.status = Csts::new();
        }
        let (fate, at_once, early) =
            (state.fate(), state.roll().is_multiple_of(8), state.roll().is_multiple_of(2));
        let number = state.asked.len() as u64;
        let ticket = Ticket(if state.plan.mutant == Some(Mutant::OneTicket) { 0 } else { number });
        if access == STATUS {
            state.status_asked = number;
        }
        let mut under_way = UnderWay { number, ticket, access, due: state.now, fate, value: None };
        if state.plan.late == Nanos::ZERO && fate != AccessFate::Lost
            || at_once && fate == AccessFate::Answered
        {
            let answer = state.arrive(under_way);
            answer.into_iter().for_each(|answer| state.told(&under_way, answer));
            return answer.map_or(AccessPoll::Pending(ticket), AccessPoll::Ready);
        }
        under_way.due = state.now + Nanos(1 + state.roll() % state.plan.late.0.max(1));
        if state.plan.mutant == Some(Mutant::Hasty) && matches!(access, Access::Set(..)) {
            state.under_way.push(under_way);
            return AccessPoll::Ready(Ok(0));
        }
        // Some accesses take effect when made, some only when the answer is sent.
        under_way.value =
            (early && fate != AccessFate::Refused).then(|| access.carry_out(&state.registers));
        state.under_way.push(under_way);
        AccessPoll::Pending(ticket)
    }
}

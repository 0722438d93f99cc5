use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use units::{Class, Op};

use super::*;
use crate::{Cycle, LatencyPrice, Woke};

mod bound;
mod choices;
mod closed;
mod holding;
mod inherited;

const MACHINE: Cycle = Cycle { cpu: Nanos(2_500), nap: Nanos(2_400), delay: Nanos(2_500), late: Nanos(2_000), message: Nanos(500) };

fn read() -> Class {
    Class::new(Op::Read, 4096)
}

fn policy(price: LatencyPrice) -> Adaptive {
    Adaptive::new(price, &MACHINE)
}

//! What is kept of a run.

use ::sim::sweep::Halves;
use ::sim::sweep::judge::Fare;
use serde::{Deserialize, Serialize};

use crate::rows::Row;

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    pub row: Row,
    pub halves: Halves,
    /// Over all seeds.
    pub fare: Fare,
}

//! `reap compare`.
use crate::args::CompareArgs;
use anyhow::{Result, bail};
use std::process::ExitCode;
pub fn compare(_args: &CompareArgs) -> Result<ExitCode> {
    bail!("soon")
}

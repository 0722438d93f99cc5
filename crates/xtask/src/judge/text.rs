//! Writes a cell as a scenario file. `cargo xtask judge` runs the scenario of that file, so that a
//! user can run any single cell with `reap sim`.

use toml::{Table, Value};
use workload::fio::Environment;

use super::cells::{Cell, Kind, Prices, ships};
use completion::Mode;
use emu::Profile;
use sim::{Costs, Scenario, SimError, file};

/// I/Os of the run that measures the capacity.
const CAPACITY_IOS: u64 = 20_000;

/// An environment without files: cells do not include files.
struct Nothing;

impl Environment for Nothing {
    fn include(&self, _from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        Err(format!("a cell includes no file, but this one includes {path}"))
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

impl Cell {
    /// IOPS of `poll`. For an open loop they are measured in a closed loop, and are the same for
    /// every load.
    ///
    /// # Errors
    /// The run breaks an invariant.
    pub fn capacity(&self) -> Result<f64, SimError> {
        let kind = if self.kind.is_open() { Kind::Closed } else { self.kind };
        let cell = Cell { kind, ..self.clone() };
        cell.scenario(Mode::POLL, 0.0, CAPACITY_IOS, 1)?.run().map(|outcome| outcome.iops())
    }

    /// The scenario of the cell with `ios` I/Os. `capacity`: the IOPS of which the load is a share.
    ///
    /// # Errors
    /// A profile or price cannot be written to a file.
    pub fn scenario(
        &self,
        mode: Mode,
        capacity: f64,
        ios: u64,
        seed: u64,
    ) -> Result<Scenario, SimError> {
        let text = self.text(capacity, ios, seed)?;
        let read = file::read(&self.to_string(), &text, &Nothing)
            .map_err(|error| SimError::Unfit(error.to_string()))?;
        let mut scenario = Scenario { mode, ..read.scenario };
        // Data are not copied: that would affect no result, and take half of the time.
        scenario.devices.iter_mut().for_each(|device| device.config.profile.moves_data = false);
        Ok(scenario)
    }

    /// The text of the scenario file.
    ///
    /// # Errors
    /// A profile or price cannot be written to a file.
    pub fn text(&self, capacity: f64, ios: u64, seed: u64) -> Result<String, SimError> {
        let threads = self.kind.threads();
        let apart = matches!(self.kind, Kind::Threads { .. });
        let mut file = Table::new();
        file.insert("title".into(), self.to_string().into());
        file.insert("seed".into(), integer(seed)?);
        // In a scenario file `ios` is per thread.
        file.insert("ios".into(), integer((ios / u64::from(threads)).max(1))?);
        file.insert(
            "machine".into(),
            table([
                ("cpus", integer(if apart { threads.into() } else { 1 })?),
                ("costs", self.costs.value()?),
            ]),
        );
        // Threads that share a CPU share a queue as well.
        let queues = if apart { threads } else { 1 };
        let device =
            table([("queues", integer(queues.into())?), ("profile", profile(&self.profile)?)]);
        file.insert("device".into(), Value::Array(vec![device]));
        file.insert("job".into(), Value::Array(vec![self.job(capacity)?]));
        toml::to_string(&file).map_err(unfit)
    }

    /// The `[[job]]` of the scenario.
    fn job(&self, capacity: f64) -> Result<Value, SimError> {
        if let Kind::File(job) = self.kind {
            return Ok(table([("fio", job.text.into())]));
        }
        let mut options = Table::new();
        let mut set = |key: &str, value: Value| options.insert(key.into(), value);
        set("rw", "randread".into());
        set("bs", "4k".into());
        set("norandommap", 1.into());
        set("iodepth", integer(self.depth.into())?);
        set(
            "iodepth_batch",
            integer(u64::from(if self.kind.is_open() { self.depth.min(16) } else { self.depth }))?,
        );
        set(
            "iodepth_batch_complete_max",
            integer(u64::from(if self.kind.is_open() { 256 } else { self.depth }))?,
        );
        let mut job = Table::new();
        match self.kind {
            Kind::Open { load } => {
                set("rate_iops", integer((capacity * f64::from(load) / 100.0).max(1.0) as u64)?);
                set("rate_process", "poisson".into());
            }
            Kind::Think { think } => {
                _ = job.insert("think".into(), format!("{}ns", think.0).into())
            }
            Kind::Threads { threads } => _ = set("numjobs", integer(threads.into())?),
            Kind::Closed | Kind::File(_) => {}
        }
        if let Kind::Threads { threads } = self.kind {
            job.insert("cpus".into(), format!("0-{}", threads.max(1) - 1).into());
        }
        job.insert("options".into(), options.into());
        Ok(job.into())
    }
}

impl Prices {
    /// The value of `machine.costs`: a name, or the differences from the list `bare-metal`.
    ///
    /// # Errors
    /// A price is too large for TOML.
    fn value(&self) -> Result<Value, SimError> {
        if file::costs_of(&self.name) == Some(self.costs) {
            return Ok(self.name.as_str().into());
        }
        let (own, bare) = (
            Table::try_from(self.costs).map_err(unfit)?,
            Table::try_from(Costs::BARE_METAL).map_err(unfit)?,
        );
        let mut differs = table([("base", "bare-metal".into())]);
        let groups = own.iter().filter_map(|(group, prices)| {
            Some((group, prices.as_table()?, bare.get(group)?.as_table()?))
        });
        for (group, prices, bare) in groups {
            let prices: Table = prices
                .iter()
                .filter(|(name, price)| bare.get(*name) != Some(price))
                .map(|(n, p)| (n.clone(), p.clone()))
                .collect();
            if let (false, Value::Table(differs)) = (prices.is_empty(), &mut differs) {
                differs.insert(group.clone(), prices.into());
            }
        }
        Ok(differs)
    }
}

/// The value of `profile`: a name, or a table without zeros.
///
/// # Errors
/// A figure is too large for TOML.
fn profile(profile: &Profile) -> Result<Value, SimError> {
    if ships(&profile.name) && profile.name.parse().as_ref() == Ok(profile) {
        return Ok(profile.name.as_str().into());
    }
    let mut own = Table::try_from(profile).map_err(unfit)?;
    without_zeros(&mut own);
    // The parser requires these tables.
    for operation in ["read", "write"] {
        own.entry(operation).or_insert_with(|| Table::new().into());
    }
    Ok(own.into())
}

/// Removes zeros, which are the defaults.
fn without_zeros(table: &mut Table) {
    table.iter_mut().filter_map(|(_, value)| value.as_table_mut()).for_each(without_zeros);
    table.retain(|_, value| {
        *value != Value::Integer(0) && value.as_table().is_none_or(|table| !table.is_empty())
    });
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn integer(n: u64) -> Result<Value, SimError> {
    i64::try_from(n).map(Value::Integer).map_err(unfit)
}

fn unfit(error: impl std::fmt::Display) -> SimError {
    SimError::Unfit(error.to_string())
}

//! The tables of scenarios that ship, cut short, as they were when somebody last read them line by
//! line. Whatever changes a figure shows up here: read the difference, and if every figure that
//! moved ought to have, `INSTA_UPDATE=always cargo test -p reap-nvme-cli snapshots` takes it over.

use units::Nanos;

use super::*;

/// A scenario that ships, with this much time before and under measurement, one seed.
fn shipped(name: &str, ramp: Nanos, runtime: Nanos) -> ScenarioFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name);
    let mut file = load(Some(&path)).unwrap_or_else(|error| panic!("{error:#}"));
    for spec in &mut file.scenario.jobs {
        (spec.job.runtime, spec.job.ramp_time) = (Some(runtime), ramp);
    }
    file
}

/// What `reap sim` prints and writes of it.
fn printed(file: &ScenarioFile, modes: &[Mode]) -> (String, String) {
    let outcomes = outcomes(file, modes);
    let results = convert::results(file, &named(file, modes), &[&outcomes]);
    (
        convert::show(&results, &convert::machine(&file.scenario), 120, true),
        results.json_text().unwrap(),
    )
}

fn table_of(file: &ScenarioFile) -> String {
    printed(file, if file.modes.is_empty() { &DEFAULT_MODES } else { &file.modes }).0
}

#[test]
fn small() {
    insta::assert_snapshot!(table_of(&shipped(
        "small.toml",
        Nanos::from_micros(500),
        Nanos::from_millis(5)
    )));
}

#[test]
fn small_as_json() {
    let file = shipped("small.toml", Nanos::from_micros(500), Nanos::from_millis(2));
    insta::assert_snapshot!(printed(&file, &[Mode::INTERRUPT, Mode::ADAPTIVE]).1);
}

#[test]
fn common_case() {
    insta::assert_snapshot!(table_of(&shipped(
        "common-case.toml",
        Nanos::from_millis(1),
        Nanos::from_millis(60)
    )));
}

#[test]
fn eighty_cpus() {
    insta::assert_snapshot!(table_of(&shipped(
        "80-cpus.toml",
        Nanos::from_micros(400),
        Nanos::from_micros(600)
    )));
}

/// A path that is lost, comes back, and changes its state.
#[test]
fn path_loss() {
    insta::assert_snapshot!(table_of(&shipped(
        "path-loss.toml",
        Nanos::ZERO,
        Nanos::from_millis(200)
    )));
}

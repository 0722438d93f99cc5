mod pages;

use completion::{DelayExponent, PollLimits};

use super::*;

fn parsed(line: &str) -> Result<Cli, String> {
    let words = std::iter::once("reap").chain(line.split_whitespace()).map(OsString::from);
    Cli::parse_words(words).map_err(|error| error.to_string())
}

fn refusal(line: &str) -> String {
    parsed(line).expect_err(line)
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn bad_numbers_name_the_range() {
    for (line, words) in [
        ("run j --queues -1", "'-1' for '--queues <N>': give a whole number from 1 to 64"),
        (
            "id mem:1G -n x",
            "'x' for '--namespace-id <NSID>': give a whole number from 1 to 4294967294",
        ),
        ("run j --queues x", "give a whole number from 1 to 64"),
        (
            "run j --completion adaptive?delay-exponent=-1",
            "column 25: '-1' is not a delay exponent",
        ),
        ("compare --repeat 0", "give a whole number from 1 to 10000"),
        ("compare --background nan", "give a whole number from 1 to 100, in per cent"),
        ("compare --loads -5", "a load is a percentage above 0 and at most 100"),
        ("compare --loads 50%%", "a load is a percentage above 0 and at most 100"),
        ("sim --seed -1", "give a whole number, 0 or more"),
        ("calibrate --sleep-us -3", "give a whole number from 1 to 10000"),
        (
            "trace --duration -1",
            "'-1' for '--duration <SECONDS>': give a number of seconds between 0.001",
        ),
        ("trace --freq -1", "give a whole number, 1 or more"),
    ] {
        let said = refusal(line);
        assert!(said.contains(words) && !said.contains("tip:"), "{line}: {said}");
    }
}

#[test]
fn percentages_are_read_alike_everywhere() {
    let Ok(Cli { command: Subcommand::Compare(compare) }) =
        parsed("compare --loads 50%,75 --background 20%")
    else {
        panic!()
    };
    assert_eq!((compare.loads, compare.background), (vec![50.0, 75.0], Some(20)));
}

#[test]
fn help_has_default_parameters() {
    let (n, limits) = (DelayExponent::DEFAULT, PollLimits::DEFAULT);
    let help = refusal("run --help").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("a number or inf ({n})")), "{help}");
    assert!(
        help.contains(&format!(
            "({}, {}, {}ms)",
            limits.weight,
            limits.budget,
            limits.time.0 / 1_000_000
        )),
        "{help}"
    );
}

/// The command breaks the lines of a help when it prints it. Only examples have lines of their own,
/// and they are indented.
#[test]
fn paragraphs_of_helps_are_not_broken() {
    for command in Cli::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| !line.starts_with("  ") && !line.is_empty()) {
            assert!(line.ends_with(['.', ':']), "{}: {line}", command.get_name());
        }
    }
}

#[test]
fn foreign_options_name_their_command() {
    for (line, words) in [
        (
            "sim --latency-price 0.3",
            "give the mode a parameter instead, --completion or --modes 'adaptive?delay-exponent=N'",
        ),
        ("run j --latency-price=0.3", "'adaptive?delay-exponent=N'"),
        ("sim --completion poll", "--completion is an option of `reap run`"),
        ("run j --modes poll", "--modes is an option of `reap compare`, `reap sim`"),
        ("compare --rw=randread", "rw is an option of fio jobs: give it to `reap run`"),
        ("compare --iodepth 4", "in a job file: reap compare job.fio"),
        ("list --histograms", "--histograms is an option of `reap run`"),
        ("run j --iodepht=4", "a similar argument exists: '--iodepth'"),
        ("compare --lod 5", "a similar argument exists: '--loads'"),
    ] {
        let said = refusal(line);
        assert!(said.contains(words) && said.matches("tip:").count() == 1, "{line}: {said}");
        assert!(!said.contains("as a value"), "{line}: {said}");
    }
    assert!(refusal("list --nonsense").contains("Usage: reap list"));
    assert!(refusal("run --runtime").contains("Usage: reap run"));
}

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    trace: TraceArgs,
}

fn settings(line: &str) -> Result<Settings, String> {
    let args = std::iter::once("trace").chain(line.split_whitespace());
    let command = Command::try_parse_from(args).map_err(|error| error.to_string())?;
    Settings::of(&command.trace).map_err(|error| error.to_string())
}

fn usage_error(line: &str) -> String {
    settings(line).unwrap_err()
}

#[test]
fn command_lines_of_the_posts_work() {
    let none = settings("").unwrap();
    assert_eq!(
        (none.mode, none.interval, none.count, none.freq),
        (Mode::Completions, Duration::from_secs(2), u64::MAX, 1)
    );
    let tenfold = settings("1 10").unwrap();
    assert_eq!((tenfold.interval, tenfold.count), (Duration::from_secs(1), 10));
    let all = settings("-mT 1").unwrap();
    assert!(all.args.milliseconds && all.args.timestamp && !all.args.queues);
    assert!(settings("-Q --freq 100").unwrap().args.queues);
}

#[test]
fn mode_and_options_in_any_order() {
    let mixed = settings("delay -Q 0.5 -d vda 3 --freq 7 --duration 9").unwrap();
    assert_eq!(
        (mixed.mode, mixed.interval, mixed.count, mixed.freq),
        (Mode::Delay, Duration::from_millis(500), 3, 7)
    );
    assert_eq!(
        (mixed.args.devices, mixed.args.duration),
        (vec!["vda".to_owned()], Some(Duration::from_secs(9)))
    );
    for mode in Mode::ALL {
        assert_eq!(settings(mode.name()).unwrap().mode, mode);
    }
}

#[test]
fn bad_arguments_are_refused() {
    assert_eq!(
        usage_error("speed"),
        "`speed` is neither a mode (completions, delay, rate, latency) nor a number of seconds"
    );
    assert!(usage_error("delay soon").contains("neither a mode"));
    assert!(usage_error("0").contains("between 0.001"));
    assert!(usage_error("NaN").contains("INTERVAL"));
    assert!(usage_error("1e300").contains("INTERVAL"));
    assert!(usage_error("1 0").contains("COUNT"));
    assert!(usage_error("1 2 3").contains("one argument too many"));
    assert!(usage_error("delay 1 2 3 4").contains("one argument too many"));
    assert!(usage_error("--freq 0").contains("--freq"));
    assert!(usage_error("--freq x").contains("for '--freq <N>': give a whole number, 1 or more"));
    for word in ["0", "NaN", "soon"] {
        let message = usage_error(&format!("--duration {word}"));
        assert!(
            message.contains("for '--duration <SECONDS>': give a number of seconds between 0.001"),
            "{message}"
        );
    }
    assert!(usage_error("rate --freq 2").contains("rate"));
    assert!(usage_error("latency --line nvme0q1").contains("-d"));
    assert!(usage_error(&"-d x ".repeat(9)).contains("at most 8"));
}

#[cfg(not(feature = "ebpf"))]
#[test]
fn missing_feature_names_the_build() {
    let message = run(&TraceArgs::default(), &mut std::io::sink()).unwrap_err().to_string();
    assert!(message.contains("clang") && message.contains("--features ebpf"), "{message}");
    assert!(!message.contains('\n'));
}

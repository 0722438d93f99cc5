use clap::Parser;

use super::*;

mod snapshots;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SimArgs,
}

fn args(line: &str) -> SimArgs {
    Line::parse_from(line.split_whitespace()).args
}

/// Runs of a scenario, in the order of the modes.
fn outcomes(file: &ScenarioFile, modes: &[Mode]) -> Vec<Option<Outcome>> {
    modes
        .iter()
        .map(|&mode| Some(Scenario { mode, ..file.scenario.clone() }.run().unwrap()))
        .collect()
}

/// Their rows.
fn named(file: &ScenarioFile, modes: &[Mode]) -> Vec<convert::Contender> {
    convert::contenders(modes, &file.spins)
}

/// A mode that spins has a row for each way of spinning that a scenario names; the others have one.
#[test]
fn spin_settings_are_separate_rows() {
    let text = "poll = [\"spins\", \"yields\"]\nios = 50\n[machine]\nhogs = 0\n[[device]]\nprofile = \"optane\"\n[[job]]\noptions = {}\n";
    let file = ::sim::file::read("spun.toml", text, &workload::fio::Nothing).unwrap();
    let contenders = named(&file, &[Mode::INTERRUPT, Mode::POLL]);
    let labels: Vec<&str> = contenders.iter().map(|contender| contender.label.as_str()).collect();
    assert_eq!(labels, ["interrupt", "poll", "poll (yields)"]);
    let run = |contender: &convert::Contender| {
        let scenario =
            Scenario { mode: contender.mode, spin: contender.spin, ..file.scenario.clone() };
        Some(scenario.run().unwrap())
    };
    let outcomes: Vec<Option<Outcome>> = contenders.iter().map(run).collect();
    let results = convert::results(&file, &contenders, &[&outcomes]);
    let [_, spins, yields] = &results.rows[..] else { panic!("{:?}", results.rows.len()) };
    assert_eq!((spins.mode.as_str(), yields.mode.as_str()), ("poll", "poll (yields)"));
    // It is behind the hog with each look, the other one has its slices.
    let rate = |row: &crate::rows::Row| row.iops.map(|estimate| estimate.value);
    assert!(rate(yields) < rate(spins), "{:?} {:?}", rate(yields), rate(spins));
}

#[test]
fn default_scenario_compares_usual_modes() {
    let file = load(None).unwrap();
    assert_eq!(modes(&args("sim"), &file).unwrap(), DEFAULT_MODES);
    assert_eq!(
        modes(&args("sim --modes poll,interrupt"), &file).unwrap(),
        [Mode::POLL, Mode::INTERRUPT]
    );
    assert!(
        modes(&args("sim --modes poll,poll"), &file).unwrap_err().to_string().contains("twice")
    );
}

/// Invariant 1, and the work of the machine: the parts of a CPU's time add up, and the table has
/// them.
#[test]
fn rows_account_for_cpu_time() {
    let file = load(None).unwrap();
    let modes = [Mode::INTERRUPT, Mode::POLL];
    let rounds = [outcomes(&file, &modes), outcomes(&file, &modes)];
    let results =
        convert::results(&file, &named(&file, &modes), &rounds.each_ref().map(Vec::as_slice));
    let [interrupt, poll] = &results.rows[..] else { panic!("{:?}", results.rows.len()) };
    for row in [interrupt, poll] {
        let split = row.extra["cpu_pct"].as_object().unwrap();
        let sum: f64 = split.values().map(|part| part.as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 1e-6, "{split:?}");
        assert_eq!(row.scene.qd, 32);
    }
    assert!(
        interrupt.extra["interrupts_per_s"].as_f64().unwrap() > 1e5
            && poll.extra["interrupts_per_s"].as_f64().unwrap() == 0.0
    );
    assert!(results.against_first(&poll.scene, "poll", crate::rows::CPU).is_some());
    let show = |wide| convert::show(&results, &convert::machine(&file.scenario), 80, wide);
    let (text, wide) = (show(false), show(true));
    assert!(text.contains("1 CPU;") && text.contains("In this scenario: "), "{text}");
    assert!(text.lines().all(|line| line.trim_end().chars().count() <= 80), "{text}");
    assert!(
        ["IRQ", "longest away", "msgs"]
            .iter()
            .all(|word| wide.contains(word) && !text.contains(word)),
        "{wide}"
    );
}

/// Some seeds of a mode that hardly ever sleeps have no wake-up at all, and what is no number
/// cannot be read from JSON again.
#[test]
fn no_wakeups_no_completions_per_wakeup() {
    let file = load(None).unwrap();
    let [woken, awake] = [Mode::INTERRUPT, Mode::POLL].map(|mode| outcomes(&file, &[mode]));
    let per_wakeup = |rounds: &[&[Option<Outcome>]]| {
        convert::results(&file, &named(&file, &[Mode::ADAPTIVE]), rounds).rows[0].per_wakeup
    };
    let alone = per_wakeup(&[&woken]);
    assert!(alone > 0.0);
    assert_eq!([per_wakeup(&[&woken, &awake]), per_wakeup(&[&awake])], [alone, 0.0]);
}

/// Four threads on as many CPUs, of which one also has the vector's thread. A kernel's comes before
/// all others: that CPU's own is hardly ever run. Reap's is an ordinary thread, which starves no
/// other.
#[test]
fn starved_thread_is_noted() {
    let told = |host: &str| {
        let text = format!(
            "host = \"{host}\"\nduration = \"20ms\"\n[machine]\ncpus = 4\n[[device]]\nprofile = \"optane\"\nqueues = 1\n[[job]]\n\
             options = {{ rw = \"randread\", bs = \"4k\", iodepth = 8, numjobs = 4, norandommap = 1 }}\n"
        );
        let file = ::sim::file::read("four.toml", &text, &workload::fio::Nothing).unwrap();
        let modes = [Mode::INTERRUPT, Mode::THREADED];
        let results = convert::results(&file, &named(&file, &modes), &[&outcomes(&file, &modes)]);
        let told = results
            .notes
            .into_iter()
            .filter(|note| note.contains("a thread of job 'job' completed"));
        told.collect::<Vec<String>>()
    };
    let kernel = told("kernel");
    assert!(kernel.len() == 1 && kernel[0].starts_with("threaded: "), "{kernel:?}");
    assert_eq!(told("user"), Vec::<String>::new());
}

/// Where the load goes in steps, each mode has a time line of its decisions.
#[test]
fn steps_have_a_time_line() {
    let text = r#"
        duration = "20ms"
        [[device]]
        profile = "optane"
        [[job]]
        options = { rw = "randread", bs = "4k", iodepth = 32, norandommap = 1 }
        phase = [{ from = "0ms", iops = 20000 }, { from = "10ms", iops = 300000 }]
    "#;
    let mut file = file::read("steps", text, &jobs::Disk).unwrap();
    file.scenario.ticks = convert::ticks(&file.scenario);
    let modes = [Mode::ADAPTIVE, Mode::POLL];
    let results = convert::results(&file, &named(&file, &modes), &[&outcomes(&file, &modes)]);
    let [adaptive, poll] = &results.timelines[..] else { panic!("{:?}", results.timelines) };
    let ticks = |line: &serde_json::Value| line["ticks"].as_array().unwrap().clone();
    assert_eq!(
        (&adaptive["mode"], &adaptive["tick_ns"], ticks(adaptive).len()),
        (&"adaptive".into(), &100_000.into(), 200)
    );
    assert_eq!(
        (&adaptive["ticks"][50]["offered"], &adaptive["ticks"][150]["offered"]),
        (&20_000.0.into(), &300_000.0.into())
    );
    let mean = |line, key: &str| {
        ticks(line)[110..].iter().map(|tick| tick[key].as_f64().unwrap()).sum::<f64>() / 90.0
    };
    assert!((250e3..350e3).contains(&mean(adaptive, "iops")));
    assert!(
        ticks(adaptive).iter().any(|tick| tick["tried"].as_f64() > Some(0.0)),
        "a spin measures the device"
    );
    assert_eq!(mean(poll, "naps") + mean(poll, "sleeps"), 0.0);
    // A load without steps has none.
    assert_eq!(convert::ticks(&load(None).unwrap().scenario), None);
}

#[test]
fn results_come_in_order() {
    let items: Vec<u64> = (0..100).collect();
    let results = on_all_cores(&items, &AtomicBool::new(false), |n| n * 2);
    assert!(results.iter().zip(&items).all(|(result, n)| *result == Some(n * 2)));
}

#[test]
fn stopped_pool_leaves_items_undone() {
    let stop = AtomicBool::new(false);
    let results = on_all_cores(&[(); 1_000], &stop, |()| stop.store(true, Relaxed));
    let done = results.iter().flatten().count();
    assert!((1..1_000).contains(&done), "{done}");
    assert!(on_all_cores(&[1, 2], &AtomicBool::new(true), |n| *n).iter().all(Option::is_none));
}

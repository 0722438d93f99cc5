//! How far `adaptive` is from every other mode, in virtual time: for each load, queue depth and profile, the best setting
//! of its knob against each mode, by p99 and CPU per I/O.
//!
//! `cargo run --release -p sim --example regret -- [profile…] [--virtual] [--ios N] [--qd N,…] [--loads N,…]`

use completion::{LatencySlack, Mode};
use device::Profile;
use sim::{Costs, Outcome, Scenario, closed_loop, open_loop};

const SLACKS: [u32; 14] = [0, 5, 20, 40, 60, 80, 100, 200, 500, 1_000, 2_000, 5_000, 20_000, u32::MAX];

const OTHERS: [&str; 11] =
    ["interrupt", "threaded", "irq-poll", "posted", "hybrid-mean", "hybrid-min", "suspend", "coalesce", "dim", "vic", "poll"];

#[derive(Clone, Copy)]
struct Point {
    cpu: f64,
    p50: f64,
    p99: f64,
    p999: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list = |name: &str, default: &[u64]| -> Vec<u64> {
        let at = args.iter().position(|a| a == name);
        at.and_then(|at| args.get(at + 1)).map_or(default.to_vec(), |text| text.split(',').filter_map(|n| n.parse().ok()).collect())
    };
    let profiles: Vec<&String> = args.iter().filter(|a| Profile::NAMES.contains(&a.as_str())).collect();
    let show = args.iter().any(|a| a == "--show");
    let ios = list("--ios", &[20_000])[0];
    for costs in [("bare", Costs::BARE_METAL), ("virtual", Costs::VIRTUAL)] {
        if args.iter().any(|a| a == "--virtual") && costs.0 == "bare" || args.iter().any(|a| a == "--bare") && costs.0 != "bare" {
            continue;
        }
        for name in &profiles {
            let Ok(profile) = name.parse::<Profile>() else { continue };
            let on = |costs, job| {
                let mut scenario = Scenario::new(Mode::POLL, profile.clone(), job);
                scenario.machine.costs = costs;
                scenario
            };
            for &qd in &list("--qd", &[1, 4, 32, 128]) {
                let capacity = run(&on(costs.1, closed_loop(qd as u32, ios))).iops();
                for &load in &list("--loads", &[1, 10, 25, 50, 75, 90]) {
                    let job = workload::Job { iodepth: qd as u32, ..open_loop((capacity * load as f64 / 100.0) as u64, ios) };
                    let base = on(costs.1, job);
                    cell(&format!("{} {name} qd {qd} load {load}", costs.0), &base, show);
                }
            }
        }
    }
}

fn run(scenario: &Scenario) -> Outcome {
    scenario.run().unwrap_or_else(|error| panic!("{}: {error}", scenario.mode))
}

fn point(scenario: &Scenario) -> Point {
    let outcome = run(scenario);
    let latency = outcome.intended_read_latency();
    Point { cpu: outcome.cpu_ns_per_io(), p50: latency.p50 as f64, p99: latency.p99 as f64, p999: latency.p999 as f64 }
}

fn cell(name: &str, base: &Scenario, show: bool) {
    let curve: Vec<(u32, Point)> = SLACKS
        .iter()
        .map(|&s| (s, point(&Scenario { mode: Mode::ADAPTIVE, latency_slack: LatencySlack::per_mille(s), ..base.clone() })))
        .collect();
    if show {
        println!("{name}");
        for (slack, p) in &curve {
            println!(
                "    {:>12} cpu {:8.0} p50 {:8.1} p99 {:8.1} p99.9 {:8.1}",
                LatencySlack::per_mille(*slack).to_string(),
                p.cpu,
                p.p50 / 1e3,
                p.p99 / 1e3,
                p.p999 / 1e3
            );
        }
    }
    for mode in OTHERS.iter().filter_map(|name| name.parse::<Mode>().ok()) {
        let other = point(&Scenario { mode, ..base.clone() });
        let regret = |p: &Point| (p.cpu / other.cpu).max(p.p99 / other.p99);
        let (slack, best) = curve.iter().min_by(|a, b| regret(&a.1).total_cmp(&regret(&b.1))).unwrap();
        if regret(best) > 1.05 || show && !mode.to_string().starts_with(['t', 'c', 'd', 'v']) {
            println!(
                "{} {name}: {mode:22} cpu {:8.0} p50 {:8.1} p99 {:8.1} p99.9 {:8.1} | {:.3} at {} cpu {:.0} p99 {:.1}",
                if regret(best) > 1.05 { "MISS" } else { "    " },
                other.cpu,
                other.p50 / 1e3,
                other.p99 / 1e3,
                other.p999 / 1e3,
                regret(best),
                LatencySlack::per_mille(*slack),
                best.cpu,
                best.p99 / 1e3
            );
        }
    }
}

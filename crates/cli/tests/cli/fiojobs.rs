//! Options of fio jobs other than reads and writes.

use serde_json::Value;

use crate::support::Place;

const SMALL: &str = "--device mem:64M?profile=null --output-format json";

fn jobs(text: &str) -> Vec<Value> {
    let place = Place::new();
    place.write("job.fio", text);
    place.reap(&format!("run job.fio {SMALL}")).ok().json()["jobs"].as_array().unwrap().clone()
}

fn ios(job: &Value, op: &str) -> u64 {
    job[op]["total_ios"].as_u64().unwrap()
}

#[test]
fn blocks_are_trimmed_and_written() {
    let jobs = jobs(
        "[global]\nsize=1m\nsync=1\n[a]\nrw=trimwrite\nbs=8k\n[b]\nstonewall\nrw=randtrim\niodepth=4\nbs=,,16k\n",
    );
    assert_eq!(
        (ios(&jobs[0], "trim"), ios(&jobs[0], "write"), ios(&jobs[1], "trim")),
        (128, 128, 64)
    );
}

#[test]
fn iolog_is_written_and_replayed() {
    let place = Place::new();
    place.write("first.fio", "[a]\nrw=randrw\nsize=256k\nnrfiles=2\nwrite_iolog=list\nwrite_lat_log=l\nwrite_bw_log=l\nlog_avg_msec=10\n");
    let first = place.reap(&format!("run first.fio {SMALL}")).ok().json()["jobs"][0].clone();
    let list = place.read("list");
    assert!(
        list.starts_with("fio version 3 iolog\n0 device add\n") && list.lines().count() == 64 + 4,
        "{list}"
    );
    for name in ["l_slat.1.log", "l_clat.1.log", "l_lat.1.log", "l_bw.1.log"] {
        assert!(place.read(name).lines().all(|line| line.split(", ").count() == 5), "{name}");
    }
    place.write("again.fio", "[a]\nread_iolog=list\nreplay_no_stall=1\niodepth=8\n");
    let again = place.reap(&format!("run again.fio {SMALL}")).ok().json()["jobs"][0].clone();
    assert_eq!(
        ["read", "write"].map(|op| ios(&first, op)),
        ["read", "write"].map(|op| ios(&again, op))
    );
}

/// As in fio; the results stay where they are.
#[test]
fn a_list_may_be_named_dash() {
    let place = Place::new();
    let results =
        place.reap(&format!("run --name=a --size=64k --write_iolog=- {SMALL}")).ok().json();
    assert_eq!(ios(&results["jobs"][0], "read"), 16);
    assert!(place.read("-").starts_with("fio version 3 iolog\n"));
}

/// Reads find blocks that were written before the jobs began: that is not part of the run.
#[test]
fn histogram_samples_fit_the_run() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nbs=4k\niodepth=8\nruntime=200ms\ntime_based\n");
    let text = place
        .reap("run job.fio --device mem:256M?profile=optane --histograms --completion interrupt")
        .ok()
        .stdout;
    let run: u64 =
        text.split("run=").nth(1).and_then(|rest| rest.split('-').next()).unwrap().parse().unwrap();
    let rows = text.split("usecs").nth(1).unwrap().lines().filter_map(|line| {
        let (from, rest) = line.split_once("->")?;
        let count = rest.split_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok()?;
        Some((from.trim().parse::<u64>().ok()?, count))
    });
    let longest = rows.filter(|(_, count)| *count > 0).map(|(from, _)| from).max().unwrap();
    assert!(longest <= run * 1000, "{longest} us in a run of {run} ms:\n{text}");
}

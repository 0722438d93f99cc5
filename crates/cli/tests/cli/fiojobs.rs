//! What fio's jobs ask for beside reads and writes.

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
    let jobs = jobs("[global]\nsize=1m\nsync=1\n[a]\nrw=trimwrite\nbs=8k\n[b]\nstonewall\nrw=randtrim\niodepth=4\nbs=,,16k\n");
    assert_eq!((ios(&jobs[0], "trim"), ios(&jobs[0], "write"), ios(&jobs[1], "trim")), (128, 128, 64));
}

#[test]
fn a_job_begins_when_the_one_that_it_waits_for_has_ended() {
    let jobs = jobs("[first]\nruntime=300ms\ntime_based\nthinktime=1ms\n[second]\nwait_for=first\nnumber_ios=10\nnumjobs=2\n");
    let elapsed = |job: &Value| job["job_runtime"].as_u64().unwrap();
    assert!(elapsed(&jobs[0]) >= 300 && ios(&jobs[1], "read") == 10 && ios(&jobs[2], "read") == 10, "{jobs:?}");
}

#[test]
fn a_list_of_ios_is_written_and_replayed() {
    let place = Place::new();
    place.write("first.fio", "[a]\nrw=randrw\nsize=256k\nnrfiles=2\nwrite_iolog=list\nwrite_lat_log=l\nwrite_bw_log=l\nlog_avg_msec=10\n");
    let first = place.reap(&format!("run first.fio {SMALL}")).ok().json()["jobs"][0].clone();
    let list = place.read("list");
    assert!(list.starts_with("fio version 3 iolog\n0 device add\n") && list.lines().count() == 64 + 4, "{list}");
    for name in ["l_slat.1.log", "l_clat.1.log", "l_lat.1.log", "l_bw.1.log"] {
        assert!(place.read(name).lines().all(|line| line.split(", ").count() == 5), "{name}");
    }
    place.write("again.fio", "[a]\nread_iolog=list\nreplay_no_stall=1\niodepth=8\n");
    let again = place.reap(&format!("run again.fio {SMALL}")).ok().json()["jobs"][0].clone();
    assert_eq!(["read", "write"].map(|op| ios(&first, op)), ["read", "write"].map(|op| ios(&again, op)));
}

/// As in fio; the results stay where they are.
#[test]
fn a_list_may_be_named_dash() {
    let place = Place::new();
    let results = place.reap(&format!("run --name=a --size=64k --write_iolog=- {SMALL}")).ok().json();
    assert_eq!(ios(&results["jobs"][0], "read"), 16);
    assert!(place.read("-").starts_with("fio version 3 iolog\n"));
}

/// Reads find blocks that were written before the jobs began: that is not part of the run.
#[test]
fn no_sample_of_a_histogram_is_longer_than_the_run() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nbs=4k\niodepth=8\nruntime=200ms\ntime_based\n");
    let text = place.reap("run job.fio --device mem:256M?profile=optane --histograms --completion interrupt").ok().stdout;
    let run: u64 = text.split("run=").nth(1).and_then(|rest| rest.split('-').next()).unwrap().parse().unwrap();
    let rows = text.split("usecs").nth(1).unwrap().lines().filter_map(|line| {
        let (from, rest) = line.split_once("->")?;
        let count = rest.split_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok()?;
        Some((from.trim().parse::<u64>().ok()?, count))
    });
    let longest = rows.filter(|(_, count)| *count > 0).map(|(from, _)| from).max().unwrap();
    assert!(longest <= run * 1000, "{longest} us in a run of {run} ms:\n{text}");
}

/// A device that keeps what is written.
const KEEPS: &str = "--device mem:64M?profile=optane --output-format json";

/// The jobs of fio's sg_verify.fio, sg_verify-fail.fio and sg_write_same_ndob.fio: what a device compares, and where it differs.
#[test]
fn writes_that_compare_find_what_differs() {
    let place = Place::new();
    let run = |jobs: &str| {
        let before = "[global]\nbuffer_pattern=0x01\nrw=write\nbs=512\nnumber_ios=20\nstonewall\n[precon]\n";
        place.write("job.fio", &format!("{before}{jobs}"));
        place.reap(&format!("run job.fio {KEEPS}"))
    };
    run("[a]\nsg_write_mode=verify_bytchk_00\n[b]\nsg_write_mode=verify_bytchk_01\n[c]\nsg_write_mode=verify_bytchk_11\nbs=10240\nnumber_ios=1\n").ok();
    run("[a]\nsg_write_mode=verify_bytchk_01\nnumber_ios=21\n").fails_with(&["Compare"]);
    run("[a]\nsg_write_mode=verify_bytchk_11\nbs=10752\nnumber_ios=1\n").fails_with(&["Compare"]);
    let zeroed = "[a]\nsg_write_mode=write_same_ndob\nnumber_ios=19\n[b]\nsg_write_mode=verify_bytchk_01\nbuffer_pattern=0x00\nnumber_ios=";
    run(&format!("{zeroed}19\n")).ok();
    run(&format!("{zeroed}20\n")).fails_with(&["Compare"]);
    // One block is written over and over, whatever stands behind it in the buffer.
    let same = "[a]\nsg_write_mode=write_same\nbuffer_pattern=\"0123456789\"\nbs=4k\nnumber_ios=4\n[b]\nsg_write_mode=verify_bytchk_01\nbuffer_pattern=\"0123456789\"\nbs=";
    run(&format!("{same}512\nnumber_ios=32\n")).ok();
    run(&format!("{same}4k\nnumber_ios=4\n")).fails_with(&["Compare"]);
}

/// Each kind of write is one by the results, as in fio; a Verify writes nothing, a Write Zeroes leaves zeroes.
#[test]
fn writes_of_several_kinds_are_mixed_by_their_shares() {
    let jobs = jobs("[a]\nrw=write\nsize=4m\nwrite_mode=write/40:zeroes/30:verify/30\nreadfua=1\n[b]\nstonewall\nreadfua=1\nsize=1m\n");
    assert_eq!((ios(&jobs[0], "write"), ios(&jobs[1], "read")), (1024, 256));
}

#[test]
fn blocks_that_a_job_makes_unreadable_fail_the_next_one() {
    let place = Place::new();
    let lost = "[a]\nrw=write\nsize=64k\nwrite_mode=uncor\n";
    place.write("job.fio", &format!("{lost}[b]\nstonewall\nrw=read\nsize=64k\n"));
    place.reap(&format!("run job.fio {KEEPS}")).fails_with(&["job 'b'", "Unrecovered Read Error"]);
    place.write("job.fio", &format!("{lost}[b]\nstonewall\nrw=write\nsize=64k\n[c]\nstonewall\nrw=read\nsize=64k\n"));
    place.reap(&format!("run job.fio {KEEPS}")).ok();
}

/// All blocks of the trims are gone, and no others; a device without lists is refused before anything is trimmed.
#[test]
fn trims_have_as_many_ranges_as_the_job_says() {
    let place = Place::new();
    let job = "[global]\nbs=4k\nstonewall\n[full]\nrw=write\nsize=2m\nbuffer_pattern=0x01\n[trim]\nrw=randtrim\nsize=1m\nnum_range=8\n\
               [gone]\nrw=write\nsize=1m\nsg_write_mode=verify_bytchk_01\nbuffer_pattern=0x00\n\
               [kept]\nrw=write\noffset=1m\nsize=1m\nsg_write_mode=verify_bytchk_01\nbuffer_pattern=0x01\n";
    place.write("job.fio", job);
    let jobs = place.reap(&format!("run job.fio {KEEPS}")).ok().json()["jobs"].as_array().unwrap().clone();
    assert_eq!((ios(&jobs[1], "trim"), jobs[1]["trim"]["io_bytes"].as_u64()), (32, Some(1 << 20)));
    assert_eq!([ios(&jobs[2], "write"), ios(&jobs[3], "write")], [256; 2]);
    place.write("job.fio", "[a]\nrw=trim\nbs=4k\nsize=1m\nnum_range=8\n").write("disk", &"x".repeat(1 << 20));
    place.reap("run job.fio --device kernel:disk --allow-writes").fails_with(&["num_range=8", "one range each"]);
}

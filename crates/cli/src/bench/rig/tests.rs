use workload::fio::{self, Input};
use workload::plan;

use super::*;

fn jobs(text: &str) -> (Vec<Job>, Plan) {
    let parsed = fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap();
    let plan = plan::plan(&parsed.jobs, &[0]);
    (parsed.jobs, plan)
}

#[test]
fn a_device_is_opened_for_the_threads_that_use_it_at_once() {
    let (jobs, plan) =
        jobs("[a]\nnumjobs=3\niodepth=8\nfilename=x\nbs=4k\n[b]\nfilename=x:y\niodepth=4\nbs=2m\n[c]\nstonewall\nfilename=y\niodepth=64\n");
    assert_eq!(need(&jobs, &plan, 0), Need { threads: 4, tags: 3 * 8 + 4 * 3, buffer_bytes: 3 * 8 * 4096 + 4 * (2 << 20) });
    assert_eq!(need(&jobs, &plan, 1), Need { threads: 1, tags: 64, buffer_bytes: 4 * (2 << 20) });
}

#[test]
fn regions_are_covered() {
    let region = |start, len| Region { start, len };
    assert_eq!(cover(region(10, 5), region(2, 3)), region(2, 13));
    assert_eq!(cover(region(0, 100), region(20, 5)), region(0, 100));
}

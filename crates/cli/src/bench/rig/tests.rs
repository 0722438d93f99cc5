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
fn several_devices_need_several_files() {
    let names = [Some("/dev/nvme0n1".to_owned()), Some("b&c".to_owned()), None];
    let error = uris(&names, "file:/tmp/x").unwrap_err().to_string();
    assert!(error.contains("3 devices (/dev/nvme0n1, b&c)") && error.contains("{filename}"), "{error}");
    assert_eq!(
        uris(&names, "file:/tmp/{filename}?size=1M").unwrap(),
        ["file:/tmp/dev_nvme0n1?size=1M", "file:/tmp/b_c?size=1M", "file:/tmp/default?size=1M"]
    );
    assert_eq!(uris(&names[..1], "file:/tmp/x").unwrap(), ["file:/tmp/x"]);
    assert_eq!(uris(&names, "mem:1G").unwrap().len(), 3);
}

/// Each would write over the other's data.
#[test]
fn two_names_do_not_become_one_file() {
    for (a, b) in [(Some("a_b"), Some("/a/b")), (Some("x%y"), Some("x&y")), (None, Some("default"))] {
        let names = [Some("other"), a, b].map(|name| name.map(str::to_owned));
        for uri in ["file:/tmp/{filename}?size=1M", "multipath:?path=file:/tmp/{filename}"] {
            let error = uris(&names, uri).unwrap_err().to_string();
            let both = format!("'{}' and '{}' would both be", a.unwrap_or("default"), b.unwrap_or("default"));
            assert!(error.contains(&both) && error.contains("rename one of them"), "{error}");
        }
        assert_eq!(uris(&names, "mem:1G").unwrap().len(), 3, "memory is each one's own");
    }
}

#[test]
fn regions_are_covered() {
    let region = |start, len| Region { start, len };
    assert_eq!(cover(region(10, 5), region(2, 3)), region(2, 13));
    assert_eq!(cover(region(0, 100), region(20, 5)), region(0, 100));
}

use workload::fio::{self, Input};

use super::*;

fn line_of(text: &str) -> String {
    line(&fio::parse(&[Input { name: "t", text: text.as_bytes() }], &fio::Nothing).unwrap())
}

#[test]
fn a_file_becomes_a_line() {
    assert_eq!(
        line_of("[global]\nbs=4k\ntime_based\nruntime=1\n[a b]\nrw=randread\n[c]\n"),
        "reap run --bs=4k --time_based --runtime=1 '--name=a b' --rw=randread --name=c\n"
    );
    // A second [global] holds for what follows it.
    assert_eq!(line_of("[a]\n[global]\nbs=8k\n[b]\nrw=read\n"), "reap run --name=a --name=b --bs=8k --rw=read\n");
}

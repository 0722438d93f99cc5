//! The example of a policy of one's own, with the whole command: as its own child.

#[path = "../examples/policy.rs"]
mod example;

use std::process::{Command, ExitCode};

/// Set for the child that is the example.
const CHILD: &str = "REAP_TEST_POLICY_CHILD";

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        return example::main();
    }
    for (name, test) in [("run", run as fn()), ("compare", compare), ("sim", sim), ("names", names)]
    {
        test();
        println!("{name}: ok");
    }
    ExitCode::SUCCESS
}

/// What the example prints; it has to succeed, or not to.
fn reap(words: &str, succeeds: bool) -> (String, String) {
    let out = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .args(words.split(' '))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, told) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.success(), succeeds, "{words}: {said}{told}");
    (said, told)
}

fn run() {
    let words = "run --name=mine --device=mem:16M?profile=optane --rw=randread --bs=4k --number_ios=500 --completion patient --output-format=json";
    let (said, told) = reap(words, true);
    assert!(said.contains("patient"), "{said}{told}");
}

fn compare() {
    let (said, told) =
        reap("compare --device mem:16M?profile=optane --modes interrupt,patient --repeat 1", true);
    assert!(said.contains("patient"), "{said}{told}");
}

fn sim() {
    let scenario = format!("{}/scenarios/small.toml", env!("CARGO_MANIFEST_DIR"));
    let (said, told) = reap(&format!("sim {scenario} --modes interrupt,patient"), true);
    assert!(said.contains("patient"), "{said}{told}");
}

fn names() {
    let (_, told) = reap("run --name=mine --rw=read --completion patent", false);
    assert!(told.contains("did you mean 'patient'"), "{told}");
}

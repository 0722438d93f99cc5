//! The library's public face, item by item, beside the one on record in `crates/reap/api.txt`: a change of the face is seen in review,
//! and CHANGELOG.md says what it means for users. `REAP_FACE=write cargo test -p reap-nvme --test house face` records a new one.

use std::path::PathBuf;
use std::process::Command;

use public_api::Builder;

/// One line an item, sorted: what a program can name, with its signature.
fn face() -> Result<String, String> {
    // rustdoc's JSON is an unstable option of every stable toolchain. A target directory of its own: the outer cargo holds the lock of the other.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("face");
    let run = Command::new(env!("CARGO"))
        .args(["rustdoc", "--quiet", "--package", "reap-nvme", "--lib", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .current_dir(super::root())
        .output()
        .map_err(|error| error.to_string())?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    let api = Builder::from_rustdoc_json(target.join("doc/reap.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .map_err(|error| error.to_string())?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

#[test]
fn the_public_face_is_the_one_on_record() {
    let record = super::root().join("crates/reap/api.txt");
    let now = face().expect("rustdoc describes the library");
    if std::env::var_os("REAP_FACE").is_some_and(|what| what == "write") {
        std::fs::write(&record, &now).unwrap();
    }
    let recorded = std::fs::read_to_string(&record).unwrap();
    let only_in = |these: &str, those: &str, sign: char| -> Vec<String> {
        let those: std::collections::HashSet<&str> = those.lines().collect();
        these.lines().filter(|line| !those.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let changed = [only_in(&recorded, &now, '-'), only_in(&now, &recorded, '+')].concat();
    assert!(
        changed.is_empty(),
        "the library's face has changed:\n{}\nIf that is meant: say so in CHANGELOG.md, then REAP_FACE=write cargo test -p reap-nvme --test house face",
        changed.join("\n")
    );
}

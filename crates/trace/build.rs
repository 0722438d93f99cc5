//! With the feature `ebpf`, compiles `src/bpf/trace.bpf.c` with clang against the headers of the
//! linked libbpf.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    if std::env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return;
    }
    let out = PathBuf::from(variable("OUT_DIR")).join("trace.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut compile = Command::new(&clang);
    // v3 has the atomic exchange and compare-exchange instructions: Linux 5.12 and later.
    compile
        .args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-I"])
        .arg(variable("DEP_BPF_INCLUDE"));
    compile.arg("-c").arg(Path::new("src/bpf/trace.bpf.c")).arg("-o").arg(out);
    match compile.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{clang} could not compile src/bpf/trace.bpf.c ({status})")),
        Err(error) => fail(&format!(
            "the feature `ebpf` needs clang (Debian: apt-get install clang), and `{clang}` did not start: {error}"
        )),
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        fail(&format!("{name} is not set: libbpf-sys did not say where its headers are"))
    })
}

fn fail(why: &str) -> ! {
    println!("cargo:error={why}");
    exit(1);
}

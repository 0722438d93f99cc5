#!/usr/bin/env bash
# All the tests, with all the set-up they need. `./test.sh` takes about 15 minutes on two cores, most of it building.
#
# Debian packages that an optional part needs are installed when this runs as root on a machine with apt; otherwise the
# part says what is missing and is skipped.
set -euo pipefail
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }

step "Unit, property and whole-stack tests"
cargo test --workspace --lib --bins --tests --examples --no-fail-fast --quiet
cargo test --workspace --doc --quiet

step "Concurrency models (loom): every hand-over, and its broken twin"
CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 RUSTFLAGS="--cfg loom" cargo test --release --quiet --target-dir target/loom -p reap-handover -p reap-blkmq -p reap-driver --lib --tests

for part in tests/*.sh; do
    [ -e "$part" ] || continue
    step "$part"
    bash "$part"
done

step "All tests passed"

#!/bin/sh
# Fuzz targets: each is fed bytes that a fuzzer makes of the kept corpora, guided by coverage. See docs/testing.md.
#
#   fuzz/run.sh                  a minute of each target
#   fuzz/run.sh SECONDS [TARGET...]   so long, of these or of all
#
# SANITIZER=address fuzz/run.sh    the same under AddressSanitizer, where the toolchain has its runtime
#
# What is found of coverage goes to target/fuzz/corpus, and a second run goes on from there; a crash is kept in fuzz/artifacts. Needs
# cargo-fuzz, and installs it into target/tools where it is missing.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
case $seconds in
*[!0-9]* | '')
    sed -n '2,11s/^# \{0,1\}//p' fuzz/run.sh
    exit 2
    ;;
esac
[ $# -eq 0 ] || shift

PATH=$PWD/target/tools/bin:$PATH
if ! command -v cargo-fuzz >/dev/null; then
    echo "cargo-fuzz is missing: installing it into target/tools" >&2
    if ! cargo install cargo-fuzz --locked --root target/tools; then
        echo "cargo-fuzz cannot be installed here: without it nothing can be fuzzed. On a machine with network: cargo install cargo-fuzz --locked" >&2
        exit 1
    fi
fi

# Stable does all of this but the sanitizers; their runtime comes with it all the same.
sanitizer=${SANITIZER:-none}
[ "$sanitizer" = none ] || export RUSTC_BOOTSTRAP=1
build="--target-dir target/fuzz/$sanitizer --sanitizer $sanitizer"
# shellcheck disable=SC2086 # Several words.
cargo fuzz build $build

[ $# -gt 0 ] || set -- $(cargo fuzz list)
failed=
for target in "$@"; do
    mkdir -p "target/fuzz/corpus/$target"
    # The first directory is written to, the others are read. What the project ships are seeds as well.
    seeds=
    [ ! -d "fuzz/seeds/$target" ] || seeds=fuzz/seeds/$target
    case $target in
    jobs) seeds="$seeds jobs" ;;
    scenarios) seeds="$seeds scenarios" ;;
    esac
    echo "== $target, $seconds s"
    # An input that takes 20 s, or 2 GiB, counts as a crash.
    # shellcheck disable=SC2086
    cargo fuzz run $build "$target" "target/fuzz/corpus/$target" $seeds -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 2>"target/fuzz/$target.log" || failed="$failed $target"
    grep -E 'stat::number_of_executed_units|DONE|SUMMARY|panicked at' "target/fuzz/$target.log" || true
done
if [ -n "$failed" ]; then
    echo "crashed:$failed; what happened is in target/fuzz/TARGET.log, the input in fuzz/artifacts/TARGET" >&2
    exit 1
fi

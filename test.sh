#!/usr/bin/env bash
# All the tests, with all the set-up they need, then what passed, failed or was skipped. `./test.sh` takes about 25 minutes on two cores,
# most of it building.
#
# Each part first says which Debian packages it installs. A part is skipped only on a machine without root, apt, a Debian mirror or x86-64.
set -uo pipefail
cd "$(dirname "$0")"

# Temporary files in a folder of this run's own, so that those that stay are seen. Some tests run as nobody, who uses it as /tmp.
log=$(mktemp)
TMPDIR=$(mktemp -d)
chmod 1777 "$TMPDIR"
export TMPDIR
# Many tests wait for a time-out or for another process: more threads than CPUs keep these busy.
export RUST_TEST_THREADS=8
trap 'rm -rf "$log" "$TMPDIR"' EXIT
summary=() passed=0 failed=0 skipped=0

part() { # part NAME COMMAND…: runs it, and keeps its result for the end
    local name=$1 begin=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" 2>&1 | tee "$log"
    case ${PIPESTATUS[0]} in
        0) passed=$((passed + 1)) what=passed ;;
        77) skipped=$((skipped + 1)) what="skipped: $(sed -n 's/^SKIPPED: //p' "$log" | tail -1)" ;;
        *) failed=$((failed + 1)) what=FAILED ;;
    esac
    summary+=("$(printf '%5d s  %s: %s' $((SECONDS - begin)) "$name" "$what")")
    while IFS= read -r line; do summary+=("         $line"); done < <(sed -n '/^Left out: /p' "$log")
}

part "unit, property and whole-stack tests" cargo test --workspace --lib --bins --tests --examples --no-fail-fast --quiet
part "documentation tests" cargo test --workspace --doc --no-fail-fast --quiet
# Every synchronisation primitive, and the same less one step.
part "concurrency models (loom)" env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 RUSTFLAGS="--cfg loom" \
    cargo test --release --quiet --no-fail-fast --target-dir target/loom -p reap-sync -p reap-driver --lib --tests
for script in tests/*.sh; do part "$script" bash "$script"; done
part "no socket stays" sh -c '! find "$TMPDIR" -type s | grep .'

printf '\n== Summary\n'
printf '%s\n' "${summary[@]}"
echo "parts: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]

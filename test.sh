#!/usr/bin/env bash
# All the tests, with all the set-up they need, then what passed, failed or was skipped. `./test.sh` takes about 16 minutes on two cores,
# a third of it building.
#
# Each part first says which Debian packages it installs. A part is skipped only on a machine without root, apt, a Debian mirror or x86-64.
set -uo pipefail
cd "$(dirname "$0")"

# Temporary files in a folder of this run's own, so that those that stay are seen. Some tests run as nobody, who uses it as /tmp.
results=$(mktemp -d)
TMPDIR=$(mktemp -d)
chmod 1777 "$TMPDIR"
export TMPDIR
# Many tests wait for a time-out or for another process: more threads than CPUs keep these busy.
export RUST_TEST_THREADS=8
trap 'rm -rf "$results" "$TMPDIR"' EXIT
# What runs in the background does not hear of Ctrl-C by itself.
trap 'trap - INT TERM; kill 0' INT TERM

part() { # part NUMBER NAME COMMAND…: runs it, shows what it prints (when it is over, if others run at the same time), and keeps its result
    local number=$1 name=$2 begin=$SECONDS log=$results/$1.log status what
    shift 2
    if [ -n "$alone" ]; then
        printf '\n== %s\n' "$name"
        "$@" 2>&1 | tee "$log"
        status=${PIPESTATUS[0]}
    else
        "$@" >"$log" 2>&1
        status=$?
        {
            flock 9
            printf '\n== %s\n' "$name"
            cat "$log"
        } 9>"$results/lock"
    fi
    case $status in
        0) what=passed ;;
        77) what="skipped: $(sed -n 's/^SKIPPED: //p' "$log" | tail -1)" ;;
        *) what=FAILED ;;
    esac
    {
        printf '%5d s  %s: %s\n' $((SECONDS - begin)) "$name" "$what"
        sed -n 's/^Left out: /         &/p' "$log"
    } >"$results/$number.result"
}

# All programs are built once, here.
alone=yes
part 10 "unit, property and whole-stack tests" cargo test --workspace --lib --bins --tests --examples --no-fail-fast --quiet
part 11 "documentation tests" cargo test --workspace --doc --no-fail-fast --quiet
# The others two at a time: guests leave a core idle most of the time.
alone=
scripts=(tests/*.sh)
(
    # Every synchronisation primitive, and the same less one step.
    part 12 "concurrency models (loom)" env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 RUSTFLAGS="--cfg loom" \
        cargo test --release --quiet --no-fail-fast --target-dir target/loom -p reap-sync -p reap-driver --lib --tests
    for n in "${!scripts[@]}"; do case ${scripts[n]} in */links.sh | */trace.sh) part $((20 + n)) "${scripts[n]}" bash "${scripts[n]}" ;; esac; done
) &
for n in "${!scripts[@]}"; do case ${scripts[n]} in */links.sh | */trace.sh) ;; *) part $((20 + n)) "${scripts[n]}" bash "${scripts[n]}" ;; esac; done
wait
alone=yes
part 99 "no socket stays" sh -c '! find "$TMPDIR" -type s | grep .'

printf '\n== Summary\n'
cat "$results"/*.result
count() { grep -l "^ *[0-9]* s .*: $1" "$results"/*.result | wc -l; }
echo "parts: $(count 'passed$') passed, $(count 'FAILED$') failed, $(count 'skipped: ') skipped"
[ "$(count 'FAILED$')" = 0 ]

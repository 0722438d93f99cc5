#!/bin/sh
# Mutation runs: each piece of code is broken in turn, and some quick test or some model has to notice. See docs/testing.md.
#
#   tests/mutants/run.sh sync             what the crate's unit tests miss, its loom models are asked about
#   tests/mutants/run.sh reap FILE...         files of `reap` or `driver`, such as crates/reap/src/thread/event_loop.rs, by the tests next to each,
#                                         what they miss by all unit tests of the crate, and the rest by the programs in tests/ that drive it
#
# Results are in target/mutants/<what>; a second run goes on where the first one was interrupted. Needs cargo-mutants:
# cargo install cargo-mutants --locked.
set -eu
cd "$(dirname "$0")/../.."

# Compiling is most of a mutant's time: without optimisation and debug information it is half of that.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0

mutate() {
    name=$1
    shift
    mkdir -p "target/mutants/$name"
    # 2: some mutants were missed; 3: some ran into the time-out.
    cargo mutants --no-shuffle --iterate --jobs 1 --output "target/mutants/$name" "$@" || [ $? -le 3 ]
    echo "== $name: missed"
    cat "target/mutants/$name/mutants.out/missed.txt"
}

case ${1-} in
sync)
    mutate sync --package reap-sync --cargo-arg=--lib
    # A model is unbounded where a mutant spins, and loom ends it after a while.
    missed=target/mutants/sync/mutants.out/missed.txt
    [ -s "$missed" ] || exit 0
    sed -E 's/^[^:]*:[0-9]+:[0-9]+: //; s/[][\\.^$*+?(){}|]/\\&/g; s/^/: /; s/$/$/' "$missed" >target/mutants/missed.re
    set --
    while IFS= read -r mutant; do set -- "$@" --re "$mutant"; done <target/mutants/missed.re
    export RUSTFLAGS="--cfg loom" CARGO_PROFILE_DEV_OPT_LEVEL=2
    mutate sync-loom --package reap-sync --test-package sync,driver --minimum-test-timeout 600 "$@" --cargo-arg=--lib
    ;;
reap)
    shift
    for file in "$@"; do
        name=$(basename "$file" .rs)
        beside=
        [ ! -e "${file%.rs}/tests.rs" ] || beside="::$name::tests"
        package=$(sed -n 's/^name = "\(.*\)"/\1/p' "${file%%/src/*}/Cargo.toml" | head -1)
        # The tests beside it are quick. What they miss, and a file without any, is for all unit tests of the library: an empty filter.
        [ -z "$beside" ] || mutate "$name" --package "$package" --file "$file" --cargo-arg=--lib -- "$beside"
        mutate "$name" --package "$package" --file "$file" --cargo-arg=--lib -- ""
        case $file in
        *multipath*) mutate "$name" --package "$package" --test-package reap-nvme --file "$file" --cargo-arg=--test=stack -- "multipath::" ;;
        */transport/* | */serve/*) mutate "$name" --package "$package" --file "$file" --cargo-arg=--test=links --cargo-arg=--test=stack -- "" ;;
        */controller_task*) mutate "$name" --package "$package" --file "$file" --cargo-arg=--test=stack -- "" ;;
        # Queues that belong to one thread are the whole library's affair.
        */thread/* | */shared/*) mutate "$name" --package "$package" --file "$file" --cargo-arg=--test=stack -- "owned_queues::" ;;
        esac
    done
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

#!/bin/bash
# What tracing costs: IOPS of a fio job with `reap trace` running over IOPS without, in interleaved pairs, in random order within a pair.
# Prints for each variant the median ratio and its 95 % interval (order statistics of the pairs), and an A/A run: nothing against nothing.
#   benches/trace_overhead.sh PROGRAM [PAIRS (30)] [SECONDS (2)] [FILE]        PROGRAM: the trace program, or "reap trace"
# Root, fio. Takes pairs x 8 runs of fio: 30 pairs of 2 s about 9 minutes.
set -euo pipefail
program=$1 pairs=${2:-30} seconds=${3:-2} file=${4:-target/trace/overhead.data}
[ "$pairs" -ge 6 ] || { echo "an interval needs 6 pairs or more" >&2; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out" "$file"' EXIT
fio --name=fill --filename="$file" --size=512m --rw=write --bs=1m --end_fsync=1 >/dev/null

iops() { # iops [ARGUMENTS OF trace]: of one run; nothing traces without arguments
    local pid=
    if [ $# -gt 0 ]; then
        $program "$@" 600 >"$out/trace" 2>&1 &
        pid=$!
        until grep -qs '^Tracing' "$out/trace"; do
            kill -0 $pid 2>/dev/null || { cat "$out/trace" >&2; exit 1; }
            sleep 0.05
        done
    fi
    fio --name=load --filename="$file" --size=512m --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=32 --runtime="$seconds" \
        --time_based --output-format=terse --terse-version=3 | awk -F';' '{ print $8 }'
    if [ -n "$pid" ]; then
        kill -INT $pid
        wait $pid
    fi
}

variants=("A/A" "completions" "completions --freq 100" "delay" "latency")
[ -z "${VARIANTS:-}" ] || IFS=, read -ra variants <<<"$VARIANTS"
for ((pair = 1; pair <= pairs; pair++)); do
    for variant in "${variants[@]}"; do
        arguments=($variant)
        [ "$variant" = A/A ] && arguments=()
        if ((RANDOM % 2)); then
            without=$(iops) with=$(iops "${arguments[@]}")
        else
            with=$(iops "${arguments[@]}") without=$(iops)
        fi
        echo "$variant;$without;$with" | tee -a "$out/all" >&2
    done
done
for variant in "${variants[@]}"; do
    awk -F';' -v variant="$variant" '$1 == variant { print $3 / $2 }' "$out/all" | sort -n | awk -v variant="$variant" '
        { ratio[NR] = $1 }
        END {
            # The k-th smallest and largest enclose the median with 95 %: k = n/2 - 0.98 sqrt(n), by the normal approximation.
            k = int(NR / 2 - 0.98 * sqrt(NR)); if (k < 1) k = 1
            median = NR % 2 ? ratio[(NR + 1) / 2] : (ratio[NR / 2] + ratio[NR / 2 + 1]) / 2
            printf "%-24s median %.3f  [%.3f, %.3f]  %d pairs\n", variant, median, ratio[k], ratio[NR + 1 - k], NR
        }'
done

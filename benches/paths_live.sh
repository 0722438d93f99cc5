#!/bin/bash
# `latency` against `queue-depth`, live: interleaved pairs of runs, in random order within a pair, for each kind of unequal paths and for
# equal ones. Prints the median ratio of IOPS, its 95 % interval (order statistics of the pairs), and the median of each one's p99.
#   benches/paths_live.sh [PAIRS (15)] [SECONDS (1)] [REAP (target/release/reap)]
# A quiet machine with two CPUs, python3. 15 pairs of 1 s take two and a half minutes.
set -euo pipefail
pairs=${1:-15} seconds=${2:-1} reap=${3:-target/release/reap}
[ "$pairs" -ge 6 ] || { echo "an interval needs 6 pairs or more" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '[load]\nrw=randread\nbs=4k\niodepth=32\nsize=64m\ntime_based\nruntime=%s\n' "$seconds" >"$dir/job.fio"
# A drive of 300,000 reads a second, and one of a third.
for drive in "whole 24 80000" "third 24 240000"; do
    read -r name channels base <<<"$drive"
    printf 'channels = %s\nread = { base_ns = %s }\nwrite = { base_ns = 20000 }\n' "$channels" "$base" >"$dir/$name.toml"
done

run() { # run POLICY PATH PATH: IOPS and p99 in ns
    "$reap" run "$dir/job.fio" --output-format json --completion poll --device "multipath:?path=$2&path=$3&policy=$1" 2>/dev/null |
        python3 -c 'import json, sys; read = json.load(sys.stdin)["jobs"][0]["read"]; print(read["iops"], read["clat_ns"]["percentile"]["99.000000"])'
}

cases=(
    "2 ms farther|mem:64M?profile=tlc|mem:64M?profile=tlc%26delay=2ms"
    "30 ms farther|mem:64M?profile=tlc|mem:64M?profile=tlc%26delay=30ms"
    "a third of the IOPS|mem:64M?profile=$dir/whole.toml|mem:64M?profile=$dir/third.toml"
    "equal|mem:64M?profile=tlc|mem:64M?profile=tlc"
)
for ((pair = 1; pair <= pairs; pair++)); do
    for case in "${cases[@]}"; do
        IFS='|' read -r name first second <<<"$case"
        if ((RANDOM % 2)); then
            depth=$(run queue-depth "$first" "$second") latency=$(run latency "$first" "$second")
        else
            latency=$(run latency "$first" "$second") depth=$(run queue-depth "$first" "$second")
        fi
        echo "$name|$depth|$latency" | tr ' |' '_;' | sed 's/_\([0-9]\)/;\1/g' >>"$dir/all"
    done
done
python3 - "$dir/all" <<'END'
import statistics, sys
rows = [line.strip().rsplit(";", 4) for line in open(sys.argv[1])]
for name in dict.fromkeys(row[0] for row in rows):
    own = [[float(figure) for figure in row[1:]] for row in rows if row[0] == name]
    ratios = sorted(latency / depth for depth, _, latency, _ in own)
    k = max(int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5), 1)
    tails = [statistics.median(row[at] for row in own) / 1e3 for at in (1, 3)]
    median = statistics.median(ratios)
    print(f"{name.replace('_', ' '):<22} × {median:.2f} [{ratios[k - 1]:.2f}, {ratios[-k]:.2f}]  p99 {tails[1]:.0f} µs against {tails[0]:.0f} µs")
END

#!/bin/bash
# `latency` against `queue-depth`, live: unequal paths, and equal ones. In each round every case is run under both policies, all in random
# order; what is judged is the ratio within a round: the median over rounds, with its 95 % bootstrap interval.
#   benches/paths_live.sh [ROUNDS (30)] [REAP (target/release/reap)]
# 30 rounds take five minutes. Two CPUs and python3; a quiet machine.
#
# The host's thread and the one that steps the controllers have a CPU each at best, and neither may be what limits a path. So the
# drives are slow ones: a read takes a millisecond, eight are in flight, 8,000 a second at most, and waiting costs next to no CPU.
set -euo pipefail
rounds=${1:-30} reap=${2:-target/release/reap}
[ -x "$reap" ] || { echo "there is no $reap: cargo build --release -p reap-nvme-cli" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# While the ramp lasts `latency` learns.
printf '[load]\nrw=randread\nbs=4k\niodepth=8\nsize=64m\ntime_based\nruntime=500ms\nramp_time=300ms\n' >"$dir/job.fio"
for drive in "whole 1000000" "third 3000000"; do
    read -r name base <<<"$drive"
    printf 'channels = 16\nread = { base_ns = %s, jitter_ns = 100000 }\nwrite = { base_ns = 20000 }\n' "$base" >"$dir/$name.toml"
done

python3 - "$rounds" "$reap" "$dir" <<'END'
import json, random, statistics, subprocess, sys

rounds, reap, directory = int(sys.argv[1]), sys.argv[2], sys.argv[3]
whole, third = (f"mem:64M?profile={directory}/{name}.toml" for name in ("whole", "third"))
# Name, paths, what happens to them, and the least that the ratio of throughputs is to be. Scripts begin when the device is opened: half
# of what is measured is over when the path degrades.
cases = [
    ("2 ms farther", (whole, whole + "%26delay=2ms"), "", 1.1),
    ("30 ms farther", (whole, whole + "%26delay=30ms"), "", 1.1),
    ("a third of the IOPS", (whole, third), "", 1.1),
    ("degrades in the middle", (whole, whole), "at 550ms path 1 delay 30ms", 1.1),
    ("equal", (whole, whole), "", 0.98),
]
policies = ("queue-depth", "latency")


def block(case, policy):
    (first, second), script = case[1], f"&script={case[2].replace(' ', '%20')}" if case[2] else ""
    device = f"multipath:?path={first}&path={second}&policy={policy}{script}"
    command = [reap, "run", f"{directory}/job.fio", "--output-format", "json", "--completion", "interrupt", "--device", device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    read = json.loads(done.stdout)["jobs"][0]["read"]
    return read["iops"], read["clat_ns"]["percentile"]["99.000000"]


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


figures = {}
for _ in range(rounds):
    blocks = [(at, policy) for at in range(len(cases)) for policy in policies]
    random.shuffle(blocks)
    for at, policy in blocks:
        figures.setdefault((at, policy), []).append(block(cases[at], policy))
print(f"latency ÷ queue-depth, medians of {rounds} rounds with their 95 % intervals")
for at, (name, *_, least) in enumerate(cases):
    pairs = list(zip(figures[at, "queue-depth"], figures[at, "latency"]))
    line = f"{name:<22}"
    for figure, what in enumerate(("IOPS", "p99")):
        ratios = [latency[figure] / depth[figure] for depth, latency in pairs]
        low, high = interval(ratios)
        line += f"  {what} × {statistics.median(ratios):.3f} ({low:.3f}–{high:.3f})"
        if figure == 0:
            line += f", goal {least}: " + ("met" if low >= least else "missed" if high < least else "open")
    print(line)
END

#!/usr/bin/env python3
"""What `adaptive` gives up against the best fixed mode, live on this machine.

    benches/adaptive_live.py [REAP (target/release/reap)] [REPEAT (12)]

Of each job: one `compare` of the fixed modes chooses the best by CPU time × (mean latency)³; a second one, of that mode and `adaptive`, gives the
regret R, the ratio of that product, with its 95 % interval and that of the mode against itself (A/A). CPU time is that of the threads plus W for
each wake-up as `calibrate` measures it first; the last column is R with the CPU time that idle-priority loops lost instead. About 20 minutes.
"""

import json
import os
import subprocess
import sys
import tempfile

REAP = sys.argv[1] if len(sys.argv) > 1 else "target/release/reap"
REPEAT = sys.argv[2] if len(sys.argv) > 2 else "12"
MODES = "interrupt,irq-poll,hybrid-mean,hybrid-min,suspend,coalesce,dim,poll"
KERNEL_MODES = "interrupt,irq-poll,suspend,poll"
SCORE = "cpu_x_lat_mean_cubed"


def compare(directory, job, device, modes, costs):
    path = os.path.join(directory, "result.json")
    words = ["compare", *job, "--device", device, "--modes", modes, "--repeat", REPEAT, "--costs", costs, "--json", path]
    done = subprocess.run([REAP, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"reap {' '.join(words)}: {done.stderr}")
    with open(path) as file:
        return json.load(file)


def ratio(result, a, b):
    """The ratio b ÷ a with its interval, whichever of them a pair names first."""
    for pair in result["pairs"]:
        if pair["figure"] == SCORE and {pair["a"], pair["b"]} == {a, b}:
            value, (low, high) = pair["ratio"], pair["ci"] or (None, None)
            if pair["a"] == a:
                return value, low, high
            return 1 / value, high and 1 / high, low and 1 / low
    sys.exit(f"no pair of {a} and {b}")


def main():
    with tempfile.TemporaryDirectory() as directory:
        costs = os.path.join(directory, "costs.toml")
        # It refuses what other tenants of the machine have disturbed.
        for _ in range(5):
            if subprocess.run([REAP, "calibrate", "--output", costs], stdout=subprocess.DEVNULL).returncode == 0:
                break
        file = os.path.join(directory, "file")
        drive = "mem:1G?profile=optane"
        cells = [(f"jobs/{name}.fio", drive, MODES) for name in ("randread-4k-qd32", "mixed-sizes", "sequential-128k", "log", "four-threads")]
        for depth in (1, 32):
            job = os.path.join(directory, f"depth-{depth}.fio")
            with open(job, "w") as out:
                out.write(f"[file-{depth}]\nrw=randread\nbs=4k\niodepth={depth}\ndirect=1\nsize=256m\ntime_based\nruntime=200ms\n")
            cells.append((job, f"kernel:{file}?size=256M", KERNEL_MODES))
        print(f"{'job':24} {'best mode':12} {'R':>6} {'95 % interval':>16} {'A/A':>16} {'R, stolen':>10}")
        for job, device, modes in cells:
            fixed = compare(directory, [job], device, modes, costs)
            rows = [row for row in fixed["rows"] if row["cpu_ns_per_io"] and row["lat_ns"]["mean"]]
            best = min(rows, key=lambda row: row["cpu_ns_per_io"] * row["lat_ns"]["mean"] ** 3)["mode"]
            both = compare(directory, [job], device, f"{best},adaptive", costs)
            of = {row["mode"]: row for row in both["rows"]}
            value, low, high = ratio(both, best, "adaptive")
            _, aa_low, aa_high = ratio(both, best, f"{best} (A/A)")
            a, b = of["adaptive"], of[best]
            stolen = "-"
            if a.get("stolen_ns_per_io") and b.get("stolen_ns_per_io"):
                stolen = f"{a['stolen_ns_per_io'] / b['stolen_ns_per_io'] * (a['lat_ns']['mean'] / b['lat_ns']['mean']) ** 3:.2f}"
            name = os.path.basename(job).removesuffix(".fio")
            between = lambda low, high: f"{low:.2f} to {high:.2f}" if low else "-"
            print(f"{name:24} {best:12} {value:6.2f} {between(low, high):>16} {between(aa_low, aa_high):>16} {stolen:>10}", flush=True)


main()

#!/usr/bin/env python3
"""Draws README's picture: CPU time per I/O as bars, mean latency and p99, of a drive at three shares of what it can do, simulated by `reap sim`.

    cargo build --release -p reap-nvme-cli && benches/load_chart.py [REAP (target/release/reap)]

The last line names the modes that another beats in both CPU time and mean latency.
"""

import json
import subprocess
import sys
import tempfile

MODES = ("interrupt", "poll", "hybrid-mean", "adaptive")
LOADS = (1, 10, 90)
# What the drive of the profile `optane` reaches at depth 32.
CAPACITY = 610_000
WIDTH = 24
SCENARIO = """
[machine]
costs = "bare-metal"
[[device]]
profile = "optane"
[[job]]
options = {{ rw = "randread", bs = "4k", iodepth = 32, norandommap = 1, rate_iops = {rate}, rate_process = "poisson", number_ios = 100000 }}
"""


def rows(reap, load):
    with tempfile.TemporaryDirectory() as place:
        with open(f"{place}/scenario.toml", "w", encoding="utf-8") as file:
            file.write(SCENARIO.format(rate=CAPACITY * load // 100))
        command = [reap, "sim", f"{place}/scenario.toml", "--modes", ",".join(MODES), "--json", f"{place}/rows.json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(f"{place}/rows.json", encoding="utf-8") as file:
            return {row["mode"]: (row["cpu_ns_per_io"] / 1e3, row["lat_ns"]["mean"] / 1e3, row["lat_ns"]["p99"] / 1e3) for row in json.load(file)["rows"]}


def main():
    reap = sys.argv[1] if len(sys.argv) > 1 else "target/release/reap"
    loads = {load: rows(reap, load) for load in LOADS}
    most = max(cpu for one in loads.values() for cpu, _, _ in one.values())
    print(f"load    mode         CPU per I/O, µs{'':{WIDTH - 9}}mean, µs  p99, µs")
    beaten = []
    for load, one in loads.items():
        for mode in MODES:
            cpu, mean, p99 = one[mode]
            if any(a <= cpu and b <= mean and (a, b) != (cpu, mean) for a, b, _ in one.values()):
                beaten.append(f"{mode} at {load} %")
            bar = "█" * max(1, round(WIDTH * cpu / most))
            label = f"{load} %" if mode == MODES[0] else ""
            print(f"{label:<8}{mode:<12} {bar:<{WIDTH}} {cpu:5.1f} {mean:9.1f} {p99:8.1f}")
    print(f"beaten in both: {', '.join(beaten) or 'none'}")


if __name__ == "__main__":
    main()

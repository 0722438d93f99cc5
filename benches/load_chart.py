#!/usr/bin/env python3
"""Draws README's picture of the load sweep from the JSON of `cargo xtask sweep`: CPU time per I/O as bars, latencies beside them.

    cargo xtask sweep --cells 'bare-metal optane open qd=32' --ios 100000 --json sweep.json
    benches/load_chart.py sweep.json
"""

import json
import sys

LOADS = (1, 10, 90)
WIDTH = 36


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 1
    with open(sys.argv[1], encoding="utf-8") as file:
        sweep = json.load(file)
    rows = {(row["load_pct"], "adaptive" if row["default"] else row["mode"]): row for row in sweep}
    modes = {mode: mode for mode in ("poll", "interrupt", "adaptive")}
    missing = [f"{mode} at {load} %" for load in LOADS for mode in modes if (load, mode) not in rows]
    if missing:
        print(f"{sys.argv[1]} lacks {', '.join(missing)}; the sweep has to be as above", file=sys.stderr)
        return 1
    most = max(rows[load, mode]["cpu_ns_per_io"] for load in LOADS for mode in modes)
    print(f"load    mode       CPU per I/O, µs{'':{WIDTH - 8}}p50, µs  p99, µs")
    for load in LOADS:
        for mode, name in modes.items():
            row = rows[load, mode]
            cpu = row["cpu_ns_per_io"]
            bar = "█" * max(1, round(WIDTH * cpu / most))
            label = f"{load} %" if mode == next(iter(modes)) else ""
            print(f"{label:<8}{name:<10} {bar:<{WIDTH}} {cpu / 1000:5.1f} {row['p50_ns'] / 1000:8.1f} {row['p99_ns'] / 1000:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

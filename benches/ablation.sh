#!/bin/bash
# What each mechanism of crowded machines does: the scenarios that have it, with it and without, in virtual time. IOPS, CPU per I/O and p99 of each
# mode without it, as a ratio to those with it.
#   benches/ablation.sh [REAP (target/release/reap)]
# Half a minute; python3.
set -euo pipefail
reap=${1:-target/release/reap}
[ -x "$reap" ] || { echo "there is no $reap: cargo build --release -p reap-nvme-cli" >&2; exit 1; }
cd "$(dirname "$0")/.."
python3 - "$reap" <<'END'
import json, os, re, subprocess, sys, tempfile

reap = sys.argv[1]


def without(*keys):
    """The text without the lines of these keys."""
    return lambda text: re.sub(rf"^({'|'.join(keys)}) = .*\n", "", text, flags=re.M)


def also(line, after):
    return lambda text: text.replace(after, after + line, 1)


# Scenario, mechanism, the text without it.
cases = [
    ("post-003-libaio", "notify (shared way)", without("notify")),
    ("eight-drives", "notify (shared way)", without("notify")),
    ("ten-drives-vm", "one CPU for all drives", without("affinity")),
    ("ten-drives-vm", "inject", without("inject", "injectors")),
    ("ten-drives-vm", "refill", without("refill", "refill_after")),
    ("ten-drives-vm", "wake_remote", without("wake_remote")),
    ("ten-drives-vm", "tick", without("tick")),
    ("crowded-poll", "poll = spins (naps instead)", also('poll = "naps"\n', 'host = "kernel"\n')),
    ("crowded-poll", "refill", without("refill", "refill_after")),
    ("crowded-poll", "deeper and deepest", without("deeper_after", "deeper_exit", "deepest_after", "deepest_exit")),
    ("roomy-poll", "deeper and deepest", without("deeper_after", "deeper_exit", "deepest_after", "deepest_exit")),
    ("crowded-poll", "timer_jitter", lambda text: text.replace("timer_jitter = 500", "timer_jitter = 0")),
    ("crowded-poll", "tick", without("tick")),
    ("crowded-poll", "dies", without("inside")),
]


def rows(text):
    # Beside the scenario, which may name job files.
    with tempfile.NamedTemporaryFile("w", dir="scenarios", suffix=".toml") as file, tempfile.NamedTemporaryFile(suffix=".json") as out:
        file.write(text)
        file.flush()
        done = subprocess.run([reap, "sim", file.name, "--json", out.name], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return {row["mode"]: row for row in json.load(open(out.name))["rows"]}


known = {}
print(f"{'scenario':<18} {'without':<30} {'mode':<22} {'IOPS':>6} {'CPU':>6} {'p99':>6}")
for name, mechanism, change in cases:
    text = open(f"scenarios/{name}.toml").read()
    if change(text) == text:
        sys.exit(f"{name}: it has no {mechanism}")
    with_it = known.setdefault(name, rows(text))
    for mode, row in rows(change(text)).items():
        base = with_it[mode]
        p99 = lambda row: row["lat_ns"]["p99"] or float("nan")
        ratios = [row["iops"] / base["iops"], row["cpu_ns_per_io"] / base["cpu_ns_per_io"], p99(row) / p99(base)]
        print(f"{name:<18} {mechanism:<30} {mode:<22}" + "".join(f" {ratio:>6.2f}" for ratio in ratios), flush=True)
END

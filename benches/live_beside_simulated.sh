#!/bin/bash
# What the simulator says beside what the engine does, here and now: closed loops on embedded devices run live by `compare`, and simulated with
# the price list that `calibrate` has just measured and `in_process = true`. Of each mode IOPS, CPU per I/O and p50, simulated ÷ live.
#   benches/live_beside_simulated.sh [--quick] [REPEAT (6)] [REAP (target/release/reap)]
# With all cells four minutes, with --quick (one thread, depth 32) one. Two CPUs and python3; a quiet machine: the live
# figures' intervals are beside them, and a cell that is not within 20 % is marked only where the interval does not reach it.
# On a machine that is short of CPUs a closed loop does as much less as its threads are away, whatever the mode: where the thread that spins
# has less than nine tenths of its CPU, the cell says so and its IOPS are not judged. CPU per I/O and p50 are.
# Now and then something else has a live thread's CPU for some microseconds: the kernel's tick, a hypervisor. How often and for how long is
# measured on that CPU by a loop that reads the clock; in the simulation a second thread computes as often and as long.
set -euo pipefail
quick=
[ "${1:-}" = --quick ] && { quick=1; shift; }
repeat=${1:-6} reap=${2:-target/release/reap}
[ -x "$reap" ] || { echo "there is no $reap: cargo build --release -p reap-nvme-cli" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 - "$repeat" "$reap" "$dir" "$quick" <<'END'
import gc, json, os, statistics, subprocess, sys, time, tomllib

repeat, reap, directory, quick = sys.argv[1], sys.argv[2], sys.argv[3], bool(sys.argv[4])
MODES = "interrupt,irq-poll,posted,threaded,hybrid-mean,suspend,poll,adaptive"
# A timer ends the sleeps of these.
NAPS = ("hybrid-mean", "suspend")
WITHIN = 0.2
# The part of its CPU that a thread that spins has to have had.
ENOUGH = 0.9
LOOP = "[loop]\nrw={rw}\nbs={bs}\niodepth={depth}\nnumjobs={threads}\nsize=64m\nnorandommap\ntime_based\nruntime=200ms\nramp_time=20ms\ngroup_reporting\n{more}"


def job(depth, threads, rw="randread", bs="4k", more=""):
    return LOOP.format(rw=rw, bs=bs, depth=depth, threads=threads, more=more)


# Name, profile, job. The log writes one after the other, and waits for each to be durable.
cells = [
    (f"{profile}, depth {depth}, {threads} thread{'s' * (threads > 1)}", profile, job(depth, threads))
    for profile in ("optane", "tlc")
    for threads in ((1,) if quick else (1, 4))
    for depth in ((32,) if quick else (8, 32, 128))
]
if not quick:
    cells.append(("tlc, mixed sizes, depth 32", "tlc", job(32, 1, "randrw", "4k", "bssplit=4k/60:16k/30:64k/10\nrwmixread=70\n").replace("bs=4k\n", "")))
    cells.append(("optane, log with fdatasync", "optane", job(1, 1, "write", "4k", "fdatasync=1\n")))


def run(*words):
    done = subprocess.run([reap, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")


def rows(path):
    with open(path) as file:
        return {row["mode"]: row for row in json.load(file)["rows"]}


def figures(row, others=0, wake_up=0):
    """IOPS without those of others, CPU time of threads for each I/O, p50, and what an idle-priority loop loses (simulated: the CPU time and the
    `wake_up` of the price list for each wake-up, as `compare` has them)."""
    # Live, CPU is that of threads. A timer's interrupt finds the CPU idle, and Linux charges it to none of them.
    shares = row.get("cpu_pct", {"thread": 1, "hard": 0, "soft": 0})
    threads = shares["thread"] / sum(shares[kind] for kind in ("thread", "hard", "soft"))
    threads_cpu = row.get("thread_cpu_ns_per_io") or row["cpu_ns_per_io"] * threads
    # A loop at idle priority loses all of it, interrupts too.
    stolen = row.get("stolen_ns_per_io") if row.get("thread_cpu_ns_per_io") else row["cpu_ns_per_io"] + wake_up * row["wakeups_per_s"] / row["iops"]
    return row["iops"] - others, threads_cpu, row["lat_ns"]["p50"], stolen


def reaches(row, at, simulated):
    """Whether the live figure's interval comes within the bound of the simulated one."""
    interval = row["ci"].get(("iops", "thread_cpu_ns_per_io", "lat_p50", "stolen")[at])
    if interval is None:
        return False
    low, high = interval
    return low * (1 - WITHIN) <= simulated <= high * (1 + WITHIN)


def gaps(seconds=1.0, least=8_000, most=1_000_000):
    """How often per second the threads' CPU is away for so many ns, and the median of those times. What takes longer is another thread's turn."""
    before, found = os.sched_getaffinity(0), []
    os.sched_setaffinity(0, {min(before)})
    gc.disable()
    last = begin = time.perf_counter_ns()
    while last - begin < seconds * 1e9:
        now = time.perf_counter_ns()
        if least <= now - last <= most:
            found.append(now - last)
        last = now
    gc.enable()
    os.sched_setaffinity(0, before)
    return len(found) / seconds, statistics.median(found) if found else 0


off, unjudged = {}, 0
for name, profile, text in cells:
    threads = 4 if "4 threads" in name else 1
    with open(f"{directory}/job.fio", "w") as file:
        file.write(text)
    # Sleeps are as long as the device takes, at a depth of 1; at high depths a CPU hardly goes to sleep.
    run("calibrate", "--sleep-us", "1" if "depth 128" in name else "15", "--output", f"{directory}/here.toml")
    run("compare", f"{directory}/job.fio", "--device", f"mem:64M?profile={profile}", "--modes", MODES, "--repeat", repeat, "--json", f"{directory}/live.json")
    with open(f"{directory}/here.toml", "rb") as file:
        wake_ups = tomllib.load(file)["wake_up"]
    often, long = gaps()
    # A thread that has its CPU taken away by this one has nothing to do with its device.
    away = (
        f'[[device]]\nname = "away"\nprofile = "null"\nbytes = "1M"\n'
        f'[[job]]\noptions = {{ rw = "randread", bs = "4k", norandommap = 1, rate_iops = {often:.0f}, time_based = 1, runtime = "220ms" }}\n'
        f'devices = ["away"]\ncpus = 0\nthink = "{long:.0f}ns"\n'
        if often >= 1 else ""
    )
    often = round(often) if away else 0
    with open(f"{directory}/scenario.toml", "w") as file:
        # Each thread has a queue of its own. The threads of the live run share the CPU that the controller's thread has not; here that one has its own.
        file.write(
            f'title = "{name}"\nmodes = {json.dumps(MODES.split(","))}\npoll = "naps"\n'
            f'[machine]\ncpus = {max(1, (os.cpu_count() or 2) - 1)}\ncosts = "here.toml"\n'
            f'[[device]]\nname = "mem"\nprofile = "{profile}"\nin_process = true\nqueues = {threads}\n'
            f'[[job]]\nfile = "job.fio"\ndevices = ["mem"]\n{away}'
        )
    run("sim", f"{directory}/scenario.toml", "--json", f"{directory}/simulated.json")
    live, simulated = rows(f"{directory}/live.json"), rows(f"{directory}/simulated.json")
    had = min(1.0, live["poll"]["iops"] * live["poll"]["thread_cpu_ns_per_io"] / 1e9 / min(threads, max(1, (os.cpu_count() or 2) - 1)))
    short = had < ENOUGH
    unjudged += short
    name += f" (short of CPUs: the thread that spins had {had:.0%} of one; IOPS are not judged)" if short else ""
    name += f"; away {often:.0f} times a second, for {long / 1e3:.0f} µs"
    print(f"\n{name}\n  {'mode':<12} {'IOPS live':>10} {'sim':>10} {'÷':>6}   {'CPU live':>8} {'sim':>8} {'÷':>6}   {'p50 live':>9} {'sim':>9} {'÷':>6}   {'stolen':>8} {'sim':>8} {'÷':>6}")
    for mode, row in live.items():
        if mode not in simulated:
            continue
        line = f"  {mode:<12}"
        for at, (a, b) in enumerate(zip(figures(row), figures(simulated[mode], often, wake_ups["timer" if mode in NAPS else "eventfd"]))):
            if not a or b is None:
                line += f"   {'–':>27}"
                continue
            ratio = b / a
            if short and at == 0:
                line += f" {a:>10.0f} {b:>10.0f} {ratio:>5.2f}   "
                continue
            far = abs(ratio - 1) > WITHIN and not reaches(row, at, b)
            off.setdefault(at, []).append(far)
            line += f" {a:>10.0f} {b:>10.0f} {ratio:>5.2f}{'*' if far else ' '}  "
        print(line, flush=True)
if unjudged:
    print(f"\nIOPS of {unjudged} of {len(cells)} cells are not judged: the machine was short of CPUs")
for at, what in enumerate(("IOPS", "CPU per I/O of threads", "p50", "stolen")):
    all_of = off.get(at, [])
    print(f"{what}: {len(all_of) - sum(all_of)} of {len(all_of)} within {WITHIN:.0%} of what was measured, its interval included (* where not)")
END

#!/usr/bin/env python3
"""NVMe/TCP beside SPDK on loopback, 4 KiB random reads, the host on CPU 0 and the target on CPU 1.

    benches/tcp_beside_spdk.py target|host SPDK [REAP (target/release/reap)] [PAIRS (30)]

SPDK: a directory with bin/nvmf_tgt and bin/spdk_nvme_perf. `target`: spdk_nvme_perf on `reap serve` and on nvmf_tgt, both with a null device, then
CPU of the targets at fixed rates with `reap run` as the host. `host`: `reap run` in three modes and spdk_nvme_perf on nvmf_tgt.
Runs are interleaved; of each depth (1, 32, 128) the median ratio with its 95 % bootstrap interval is printed. About 9 minutes each.
The targets run at once, but the one that is not measured is stopped: nvmf_tgt polls.
"""

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

if len(sys.argv) < 3 or sys.argv[1] not in ("target", "host"):
    sys.exit(__doc__)
WHAT, SPDK = sys.argv[1:3]
REAP = sys.argv[3] if len(sys.argv) > 3 else "target/release/reap"
PAIRS = int(sys.argv[4]) if len(sys.argv) > 4 else 30
DEPTHS = (1, 32, 128)
NQN, HOST = "nqn.2026-11.test:null", "nqn.2026-11.test:host"
NULL = {"method": "bdev_null_create", "params": {"name": "Null0", "num_blocks": 2097152, "block_size": 512}}
running = []


def start(command, port, directory):
    log = os.path.join(directory, f"{port}.log")
    process = subprocess.Popen(command, stdout=open(log, "w"), stderr=subprocess.STDOUT, env=dict(os.environ, XDG_RUNTIME_DIR=directory))
    running.append(process)
    for _ in range(200):
        if process.poll() is None and f":{port} " in subprocess.run(["ss", "-ltn"], capture_output=True, text=True).stdout:
            return process, open(log).read()
        time.sleep(0.1)
    sys.exit(f"{command[0]} does not listen at {port}:\n{open(log).read()}")


def start_spdk(port, directory, *more):
    path = os.path.join(directory, f"{port}.json")
    address = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": str(port)}
    nvmf = [
        {"method": "nvmf_create_transport", "params": {"trtype": "TCP"}},
        {"method": "nvmf_create_subsystem", "params": {"nqn": NQN, "allow_any_host": True, "serial_number": "S1"}},
        {"method": "nvmf_subsystem_add_ns", "params": {"nqn": NQN, "namespace": {"bdev_name": "Null0"}}},
        {"method": "nvmf_subsystem_add_listener", "params": {"nqn": NQN, "listen_address": address}},
    ]
    with open(path, "w") as file:
        json.dump({"subsystems": [{"subsystem": "bdev", "config": [NULL]}, {"subsystem": "nvmf", "config": nvmf}]}, file)
    return start([f"{SPDK}/bin/nvmf_tgt", "-m", "2", "--no-huge", "-s", "512", "-u", "--no-rpc-server", "-c", path, *more], port, directory)[0]


def start_reap(port, directory):
    process, _ = start(["taskset", "-c", "1", REAP, "serve", "mem:1G?profile=null", "--tcp", f"127.0.0.1:{port}"], port, directory)
    for _ in range(100):
        found = re.search(r" as (nqn\S+)", open(os.path.join(directory, f"{port}.log")).read())
        if found:
            return process, found[1]
        time.sleep(0.05)
    sys.exit("reap serve does not say its NQN")


def perf(port, nqn, depth):
    """IOPS, CPU per I/O in µs (it polls: one core) and p50 in µs."""
    where = f"trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{port} subnqn:{nqn} hostnqn:{HOST}"
    options = ["--no-huge", "-s", "256", "-c", "1", "-q", str(depth), "-o", "4096", "-w", "randread", "-t", "1", "-L", "-r", where]
    out = subprocess.run([f"{SPDK}/bin/spdk_nvme_perf", *options], capture_output=True, text=True, timeout=30).stdout
    total, p50 = re.search(r"^Total\s*:\s*([\d.]+)", out, re.M), re.search(r"50\.00000% :\s*([\d.]+)us", out)
    if not total:
        sys.exit(f"spdk_nvme_perf: {out[-500:]}")
    return float(total[1]), 1e6 / float(total[1]), float(p50[1])


def reap_run(port, nqn, depth, *more):
    job = ["--name=j", "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based", "--size=256m", "--norandommap", *more]
    command = ["taskset", "-c", "0", REAP, "run", *job, "--device", f"tcp://127.0.0.1:{port}/{nqn}?queues=1", "--output-format=json"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if out.returncode != 0:
        sys.exit(out.stderr)
    job = json.loads(out.stdout)["jobs"][0]
    return job["read"]["iops"], job["reap"]["cpu_ns_per_io"] / 1e3, job["read"]["clat_ns"]["percentile"]["50.000000"] / 1e3


def ratio(pairs):
    rng, values = random.Random(1), [a / b for a, b in pairs]
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(10_000))
    own, theirs = (statistics.median(side) for side in zip(*pairs))
    return f"{statistics.median(values):.3f} ({medians[250]:.3f} to {medians[9749]:.3f}) [{own:,.1f} / {theirs:,.1f}]"


def cpu(process):
    """Nanoseconds of all threads on a CPU."""
    tasks = f"/proc/{process.pid}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks))


def targets(directory):
    (ours, nqn), theirs = start_reap(4520, directory), start_spdk(4530, directory)
    for depth in DEPTHS:
        pairs = []
        for n in range(PAIRS):
            run = {}
            for who in ("reap", "spdk") if n % 2 == 0 else ("spdk", "reap"):
                theirs.send_signal(signal.SIGCONT if who == "spdk" else signal.SIGSTOP)
                run[who] = perf(4530, NQN, depth)[0] if who == "spdk" else perf(4520, nqn, depth)[0]
            pairs.append((run["reap"], run["spdk"]))
        print(f"depth {depth:3}: IOPS of reap serve / nvmf_tgt {ratio(pairs)}", flush=True)
    theirs.kill()
    theirs.wait()
    before = cpu(ours)
    time.sleep(3)
    print(f"reap serve, idle: {(cpu(ours) - before) / 3e7:.2f} % of a core", flush=True)
    polled = start_spdk(4531, directory, "--interrupt-mode")
    for name, process, port, subsystem in (("reap serve", ours, 4520, nqn), ("nvmf_tgt --interrupt-mode", polled, 4531, NQN)):
        polled.send_signal(signal.SIGCONT if process is polled else signal.SIGSTOP)
        for rate in (1_000, 10_000, 45_000):
            before, begun = cpu(process), time.monotonic()
            iops = reap_run(port, subsystem, 32, f"--rate_iops={rate}", "--runtime=4")[0]
            share = (cpu(process) - before) / (time.monotonic() - begun) / 1e7
            print(f"{name:26} {iops:7.0f} IOPS: {share:5.1f} % of a core", flush=True)


def hosts(directory):
    start_spdk(4630, directory)
    modes = ("poll", "interrupt", "adaptive")
    for depth in DEPTHS:
        runs = {name: [] for name in ("spdk", *modes)}
        for n in range(PAIRS):
            for name in [*runs][n % 4 :] + [*runs][: n % 4]:
                runs[name].append(perf(4630, NQN, depth) if name == "spdk" else reap_run(4630, NQN, depth, "--runtime=1", f"--completion={name}"))
        for name in modes:
            figures = zip(("IOPS", "CPU µs", "p50 µs"), zip(*runs[name]), zip(*runs["spdk"]))
            print(f"depth {depth:3}, {name} / spdk: " + ", ".join(f"{what} {ratio([*zip(a, b)])}" for what, a, b in figures), flush=True)


with tempfile.TemporaryDirectory() as directory:
    try:
        targets(directory) if WHAT == "target" else hosts(directory)
    finally:
        for process in running:
            process.kill()

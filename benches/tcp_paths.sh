#!/bin/bash
# Path policies over NVMe/TCP, against nvmet in a guest with two network devices, one for each path.
#   benches/tcp_paths.sh [ROUNDS (5)] [CASE: post, equal, 20 ms farther or first ends (all)]
# First the job of the post on queue-depth path selection: 512 KiB, depth 1, 64 I/O queues a path, and its submission latency as the post prints it. Then
# 4 KiB random reads at depth 8: on equal paths, with a second one that is 20 ms farther (netem), and with a first one that ends for a second in the middle of the run.
# In each round every case is run under each policy, all in random order; a figure is the median of the rounds, and their range.
# It takes tc, python3, and what tests/guest/setup.sh does: 10 to 15 minutes for 5 rounds. Another program than target/release/reap: REAP=PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
rounds=${1:-5} reap=${REAP:-${CARGO_TARGET_DIR:-target}/release/reap} nqn=nqn.2026-11.test:nvmet
export REAP_LAB=${REAP_LAB:-$PWD/target/lab}
command -v tc >/dev/null || { echo "tc is not there: Debian's package iproute2" >&2; exit 1; }
[ -x "$reap" ] || { echo "there is no $reap: cargo build --release -p reap-nvme-cli" >&2; exit 1; }
timeout 300 tests/guest/setup.sh "$REAP_LAB"
work=$(mktemp -d) guest=
trap '[ -z "$guest" ] || kill "$guest" 2>/dev/null; rm -rf "$work"' EXIT
read -r port0 port1 control <<<"$(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[one.bind(("127.0.0.1", 0)) for one in s]
print(*[one.getsockname()[1] for one in s])')"
network() { echo "--qemu -netdev --qemu user,id=n$1,net=10.0.$(($1 + 2)).0/24,$2 --qemu -device --qemu virtio-net-pci,netdev=n$1,romfile="; }
# shellcheck disable=SC2046
tests/guest/run.sh --timeout 3600 --module virtio_net --module nvmet-tcp --module sch_netem --append clocksource=acpi_pm --bin tc \
    $(network 0 "hostfwd=tcp:127.0.0.1:$port0-:4420,hostfwd=tcp:127.0.0.1:$control-:9999") $(network 1 "hostfwd=tcp:127.0.0.1:$port1-:4421") \
    --file tests/guest/nvmet.sh:/nvmet.sh -- "sh /nvmet.sh $nqn" >"$work/said" 2>&1 &
guest=$!
for tenth in $(seq 3000); do
    grep -qs ^READY "$work/said" && break
    kill -0 "$guest" 2>/dev/null || break
    sleep 0.1
done
grep -q ^READY "$work/said" || { cat "$work/said"; exit 1; }

python3 - "$rounds" "$reap" "$nqn" "$port0" "$port1" "$control" "$work/said" "${2:-}" <<'END'
import json, os, random, socket, statistics, subprocess, sys, time

rounds, reap, nqn, *ports, said, only = int(sys.argv[1]), *sys.argv[2:]
control = socket.create_connection(("127.0.0.1", int(ports.pop())))


def tell(line):
    """Returns when the guest has done it."""
    done = open(said).read().count(line)
    control.sendall(line.encode() + b"\n")
    while open(said).read().count(line) == done:
        time.sleep(0.05)


policies = ("queue-depth", "numa", "round-robin", "latency")
# A job thread has a queue of its own, so that 63 others, with an I/O each, make 64.
post = "--bs=512k --iodepth=1 --randrepeat=1 --ramp_time=2"
others = "--name=others --rw=randread --size=64m --numjobs=63 --number_ios=1"
small = "--bs=4k --iodepth=8"
cases = {"post": post, "equal": small, "20 ms farther": small, "first ends": small}
cases = {case: cases[case] for case in cases if only in ("", case)}
seconds = 5


def sockets(process):
    folder = f"/proc/{process}/fd"
    try:
        return sum(os.readlink(f"{folder}/{file}").startswith("socket:") for file in os.listdir(folder))
    except OSError:
        # A descriptor was closed since, or the process has ended.
        return 0


def run(case, policy):
    paths = "&".join(f"path=tcp://127.0.0.1:{port}/{nqn}?queues=64" for port in ports)
    if case == "20 ms farther":
        tell("delay 2 20ms")
    command = f"{reap} run --name=job --rw=randread --size=64m {cases[case]} --time_based --runtime={seconds} --cpus_allowed=1 {others if case == 'post' else ''} --output-format json"
    command = [*command.split(), "--device", f"multipath:?{paths}&policy={policy}&keep_alive=10s"]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if case == "first ends":
        # Once it has all its connections.
        while job.poll() is None and sockets(job.pid) < 4:
            time.sleep(0.05)
        time.sleep(1.5)
        tell("close 1")
        time.sleep(1)
        tell("open 1")
    out, told = job.communicate(timeout=300)
    if job.returncode != 0:
        sys.exit(f"{case}, {policy}: {out}{told}")
    if case == "20 ms farther":
        tell("delay 2 0ms")
    if case == "post":
        # The guest ends 130 connections.
        time.sleep(3)
    if case == "first ends" and "a path is lost" not in told:
        return None
    done = json.loads(out)
    read = done["jobs"][0]["read"]
    ios = [path["ios"] for path in done["paths"]]
    return {
        "IOPS": read["iops"],
        "share": 100 * ios[1] / sum(ios),
        "slat": read["slat_ns"]["mean"] / 1e3,
        "slat min": read["slat_ns"]["min"] / 1e3,
        "slat max": read["slat_ns"]["max"] / 1e3,
        "clat": read["clat_ns"]["mean"] / 1e3,
        "p50": read["clat_ns"]["percentile"]["50.000000"] / 1e6,
        "p99": read["clat_ns"]["percentile"]["99.000000"] / 1e6,
        "longest": read["clat_ns"]["max"] / 1e6,
    }


tell("ana 2 optimized")
figures = {}
for _ in range(rounds):
    blocks = [(case, policy) for case in cases for policy in policies]
    random.shuffle(blocks)
    for case, policy in blocks:
        print(f"{case}, {policy}", file=sys.stderr, flush=True)
        figures.setdefault((case, policy), []).append(run(case, policy))
control.sendall(b"quit\n")
for case in cases:
    print(f"\n{case}: {cases[case]}")
    for policy in policies:
        runs = [one for one in figures[case, policy] if one]
        if not runs:
            print(f"{policy:<12} no path was lost during a run")
            continue

        def told(what, digits):
            values = [one[what] for one in runs]
            return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"

        if case == "post":
            least, most = min(one["slat min"] for one in runs), max(one["slat max"] for one in runs)
            line = f"slat (usec): min={least:.0f}, max={most:.0f}, avg={told('slat', 2)}; clat avg={told('clat', 0)}; IOPS={told('IOPS', 0)}"
        else:
            line = f"IOPS {told('IOPS', 0)}; p50 {told('p50', 1)} ms; p99 {told('p99', 1)} ms; longest {told('longest', 0)} ms; second path {told('share', 0)} %"
        print(f"{policy:<12} {line}")
END
wait "$guest"
guest=

#!/bin/bash
# `tcp:` against the NVMe/TCP target of a stock kernel, in a guest: one boot. Its ports are forwarded from this machine's loopback.
# REAP_PATH_KILLS=200 tests/tcp-host.sh ends connections as often: 10 minutes.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab
cargo build -q -p reap-nvme-cli || fail "cannot build the command"
reap=target/debug/reap nqn=nqn.2026-11.test:nvmet kills=${REAP_PATH_KILLS:-30}
work=$(mktemp -d)
guest=
trap '[ -z "$guest" ] || kill "$guest" 2>/dev/null; rm -rf "$work"' EXIT
# Three free ports.
read -r port0 port1 control <<<"$(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[one.bind(("127.0.0.1", 0)) for one in s]
print(*[one.getsockname()[1] for one in s])')"
forward=hostfwd=tcp:127.0.0.1:$port0-:4420,hostfwd=tcp:127.0.0.1:$port1-:4421,hostfwd=tcp:127.0.0.1:$control-:9999
tests/guest/run.sh --timeout $((900 + kills * 3)) --module virtio_net --module nvmet-tcp --append clocksource=acpi_pm \
    --qemu -netdev --qemu "user,id=n0,$forward" --qemu -device --qemu virtio-net-pci,netdev=n0,romfile= \
    --file tests/guest/nvmet.sh:/nvmet.sh -- "sh /nvmet.sh $nqn" >"$work/said" 2>&1 &
guest=$!
for tenth in $(seq 3000); do
    grep -qs ^READY "$work/said" && break
    kill -0 "$guest" 2>/dev/null || break
    sleep 0.1
done
grep -q ^READY "$work/said" || { cat "$work/said"; fail "the guest did not come up"; }
exec 3<>"/dev/tcp/127.0.0.1/$control"

failures=0
first=tcp://127.0.0.1:$port0/$nqn second=tcp://127.0.0.1:$port1/$nqn
job() { # job WHAT DEVICE OPTION…: writes, and reads back
    what=$1 device=$2
    shift 2
    echo "== $what"
    timeout 300 $reap run --name=job --rw=randrw --size=32m --iodepth=16 --verify=crc32c --device "$device" --allow-writes "$@" >"$work/out" 2>&1 &&
        grep -q "err= 0" "$work/out" && return
    echo "FAILED: $what"
    cat "$work/out"
    kill -0 "$guest" 2>/dev/null || { cat "$work/said"; echo "the guest has gone"; exit 1; }
    failures=$((failures + 1))
}
$reap id "$first" >"$work/out" 2>&1 && grep -q "Linux" "$work/out" || { echo "FAILED: id"; cat "$work/out"; failures=$((failures + 1)); }
$reap discover -a 127.0.0.1 -s "$port0" >"$work/out" 2>&1 && grep -q "subnqn: *$nqn" "$work/out" ||
    { echo "FAILED: discover"; cat "$work/out"; failures=$((failures + 1)); }
for mode in interrupt poll adaptive threaded; do
    job "4 KiB, $mode" "$first" --bs=4k --number_ios=2000 --completion $mode
done
job "both digests" "$first?hdr_digest=yes&data_digest=yes" --bs=16k --number_ios=1000
job "1 MiB" "$first?queues=1" --bs=1m --number_ios=64
job "odd sizes" "$first?data_digest=yes" --bsrange=4k-256k --number_ios=500
both="multipath:?path=$first&path=$second&keep_alive=1s"
job "two paths" "$both&policy=round-robin" --bs=4k --number_ios=2000

# The connections of a port end, of one after the other, under a device of one path and one of two: no error, no wrong byte. Writes wait for the
# fence, 3.1 s after the loss. A port ends 4.8 s after it did last, so that for a part of this time the second device has no path either.
echo "== $kills times connections that end"
small="cqt=100&reconnect_delay=1" losses=("$((kills / 2))" "$kills")
devices=("$first?keep_alive_tmo=1&$small" "multipath:?path=$first?${small/&/%26}&path=$second?${small/&/%26}&keep_alive=1s")
jobs=()
for n in 0 1; do
    # What is verified is of one job.
    timeout $((kills * 3 + 300)) $reap run --name=job --rw=randrw --bs=4k --offset=$((n * 8))m --size=4m --iodepth=16 --rate_iops=500 --verify=crc32c \
        --time_based --runtime=$((kills * 24 / 10 + 20)) --device "${devices[n]}" --allow-writes --output-format json >"$work/out$n" 2>"$work/told$n" &
    jobs+=($!)
done
# Opening takes its time on a busy machine, and leaves out paths that it cannot reach.
sleep 10
for n in $(seq "$kills"); do
    port=$((2 - n % 2))
    echo "close $port" >&3
    sleep 0.3
    echo "open $port" >&3
    sleep 2.1
done
for n in 0 1; do
    # An error or a wrong byte ends the job with a status. The second device loses a path each time, the first each second time.
    wait "${jobs[n]}" && [ "$(grep -c "a path is lost" "$work/told$n")" -ge $((losses[n] * 2 / 3)) ] ||
        { echo "FAILED: connections that end: ${devices[n]}"; cat "$work/out$n" "$work/told$n"; failures=$((failures + 1)); }
    python3 -c 'import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
print(sys.argv[2], "losses;", *["%d %ss, longest %.2f s;" % (job[what]["total_ios"], what, job[what]["lat_ns"]["max"] / 1e9) for what in ("read", "write")])' \
        "$work/out$n" "$(grep -c "a path is lost" "$work/told$n")" || failures=$((failures + 1))
done
(sleep 2 && echo "silent 1 2" >&3) &
job "a link that is down for 2 s" "$first?keep_alive_tmo=1" --bs=4k --time_based --runtime=20 --rate_iops=500
echo "quit" >&3
exec 3>&-
wait "$guest"
guest=
tail -5 "$work/said"
[ "$failures" = 0 ] || { echo "$failures FAILED"; exit 1; }

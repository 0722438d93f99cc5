#!/bin/bash
# `tcp:` against the NVMe/TCP target of a stock kernel, in a guest: one boot. Its ports are forwarded from this machine's loopback.
# REAP_PATH_KILLS=200 tests/tcp-host.sh ends connections as often.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab
cargo build -q -p reap-nvme-cli || fail "cannot build the command"
reap=target/debug/reap nqn=nqn.2026-11.test:nvmet kills=${REAP_PATH_KILLS:-3}
work=$(mktemp -d)
guest=
trap '[ -z "$guest" ] || kill "$guest" 2>/dev/null; rm -rf "$work"' EXIT
# Three free ports.
read -r port0 port1 control <<<"$(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[one.bind(("127.0.0.1", 0)) for one in s]
print(*[one.getsockname()[1] for one in s])')"
forward=hostfwd=tcp:127.0.0.1:$port0-:4420,hostfwd=tcp:127.0.0.1:$port1-:4421,hostfwd=tcp:127.0.0.1:$control-:9999
tests/guest/run.sh --module virtio_net --module nvmet-tcp --append clocksource=acpi_pm \
    --qemu -netdev --qemu "user,id=n0,$forward" --qemu -device --qemu virtio-net-pci,netdev=n0,romfile= \
    --file tests/guest/nvmet.sh:/nvmet.sh -- "sh /nvmet.sh $nqn" >"$work/said" 2>&1 &
guest=$!
for tenth in $(seq 1200); do
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

# Connections end under a job: no error, no wrong byte.
for path in "$first?keep_alive_tmo=1&reconnect_delay=1" "$both"; do
    # Opening takes its time on a busy machine, and leaves out paths that it cannot reach.
    (sleep 10
    for n in $(seq "$kills"); do
        sleep 2
        echo "close 1" >&3
        sleep 1
        echo "open 1" >&3
        sleep 6
    done) &
    killer=$!
    job "connections that end: ${path:0:10}…" "$path" --bs=4k --time_based --runtime=$((kills * 9 + 12)) --rate_iops=500
    wait "$killer"
done
(sleep 2 && echo "silent 1 2" >&3) &
job "a link that is down for 2 s" "$first?keep_alive_tmo=1" --bs=4k --time_based --runtime=20 --rate_iops=500
echo "quit" >&3
exec 3>&-
wait "$guest"
guest=
tail -5 "$work/said"
[ "$failures" = 0 ] || { echo "$failures FAILED"; exit 1; }

#!/bin/bash
# `reap serve --tcp` under Reap's host, and under the nvme-tcp host of a stock kernel in a guest: one boot. The guest reaches this machine's
# loopback as 10.0.2.2. tshark reads what both hosts and the server send.
# What is to happen to the server the guest says in lines `host: PATH FAULT`.
# On a busy machine the kernel misjudges the TSC, and its seconds are too short: another clock.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab
need mkfs.ext4=e2fsprogs nvme=nvme-cli fio=fio
cargo test -q --workspace --test cli --no-run || fail "cannot build the command"

work=$(mktemp -d)
export XDG_RUNTIME_DIR=$work
server= capture=
trap 'for process in $server $capture; do kill -9 "$process" 2>/dev/null; done; rm -rf "$work"' EXIT
target/debug/reap serve "mem:64M" --tcp 127.0.0.1:0 --tcp 127.0.0.1:0 2>"$work/server" &
server=$!
for tenth in $(seq 100); do [ "$(grep -c serving "$work/server")" = 2 ] && break; sleep 0.1; done
addresses=($(sed -n 's/: serving .*//p' "$work/server"))
nqn=$(sed -n '1s/.* as //p' "$work/server")
[ ${#addresses[@]} = 2 ] || { echo "FAILED: no server"; cat "$work/server"; exit 1; }
ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }

# Root captures, and nobody else. At most 20,000 packets, 100 MB or 10 minutes.
if [ "$(id -u)" = 0 ]; then
    need tshark=tshark
    dumpcap -q -i lo -f "tcp port ${addresses[0]##*:} or tcp port ${addresses[1]##*:}" -B 64 -a duration:600 -a filesize:100000 -c 20000 \
        -w "$work/capture" 2>"$work/dumpcap" &
    capture=$!
    for tenth in $(seq 100); do grep -q ^File: "$work/dumpcap" && break; sleep 0.1; done
else
    echo "Left out: a capture that tshark reads: no root"
fi

# Reap's host: no digests and both, commands in the capsule and by R2T, and a TermReq in each direction.
disk=tcp://${addresses[0]}/$nqn
reap() { # reap WHAT ARGUMENTS…
    timeout 120 target/debug/reap "${@:2}" >"$work/out" 2>&1 || { echo "FAILED: $1"; cat "$work/out" "$work/server"; exit 1; }
}
reap "discover" discover -a 127.0.0.1 -s "${addresses[1]##*:}"
for digests in "" "?hdr_digest=yes&data_digest=yes"; do
    reap "4 KiB $digests" run --name=job --rw=randrw --bs=4k --iodepth=4 --number_ios=200 --device "$disk$digests" --allow-writes
    reap "1 MiB $digests" run --name=job --rw=randrw --bs=1m --size=16m --iodepth=4 --number_ios=16 --device "$disk$digests" --allow-writes
done
ends=0
for fault in wrong-r2t "terminate 4"; do
    ends=$((ends + 1))
    target/debug/reap run --name=job --rw=write --bs=64k --time_based --runtime=60 --rate_iops=20 --device "$disk" --allow-writes >"$work/out" 2>&1 &
    host=$!
    # A fault is of the connections that there are.
    for tenth in $(seq 600); do target/debug/reap ctl "${addresses[0]}" status | grep -q "ready.* [2-9] queues" && break; sleep 0.1; done
    reap "$fault" ctl "${addresses[0]}" fault $fault
    for tenth in $(seq 600); do [ "$(grep -c "ended after .*FES 0x4" "$work/server")" = $ends ] && break; sleep 0.1; done
    kill -9 "$host"
    wait "$host" 2>/dev/null
done

# The capture of Reap's host and of the guest's first parts.
check_capture() {
    [ -n "$capture" ] || return 0
    # The kernel hands packets over after a moment.
    sleep 1
    kill -INT "$capture" 2>/dev/null
    wait "$capture"
    capture=
    # A packet that is missing here was not missing there, and what follows it cannot be read.
    grep -q "received/dropped.*/0 (pcap" "$work/dumpcap" || { echo "FAILED: the capture is not complete"; cat "$work/dumpcap"; return 1; }
    read_capture() {
        tshark -r "$work/capture" -d "tcp.port==${addresses[0]##*:},nvme-tcp" -d "tcp.port==${addresses[1]##*:},nvme-tcp" \
            -o nvme-tcp.check_hdgst:TRUE -o nvme-tcp.check_ddgst:TRUE "$@" 2>"$work/tshark" || { cat "$work/tshark"; return 1; }
    }
    wrong=$(read_capture -Y "_ws.malformed || _ws.expert.severity == error || nvme-tcp.hdgst.status == 0 || nvme-tcp.ddgst.status == 0") &&
        [ -z "$wrong" ] || { echo "FAILED: PDUs that tshark finds wrong"; echo "$wrong" | head -20; return 1; }
    # Every type of PDU, digests of both kinds, and Connect by both hosts.
    read_capture -Y nvme-tcp -T fields -e nvme-tcp.type -E aggregator=' ' | tr ' ' '\n' | sort | uniq -c | sed 's/^/PDUs and their type: /' | tee "$work/types"
    for type in 0 1 2 3 4 5 6 7 9; do
        grep -qE " (0x0*)?$type$" "$work/types" || { echo "FAILED: no PDU of type $type was captured"; return 1; }
    done
    for what in "nvme-tcp.hdgst.status == 1" "nvme-tcp.ddgst.status == 1" "nvme.fabrics.cmd.connect.data.hostnqn contains 11111111-2222" \
        "nvme.fabrics.cmd.connect.data.hostnqn && !(nvme.fabrics.cmd.connect.data.hostnqn contains 11111111-2222)"; do
        [ -n "$(read_capture -Y "$what")" ] || { echo "FAILED: nothing captured is $what"; return 1; }
    done
}

mkfifo "$work/said"
tests/guest/run.sh --module virtio_net --module nvme-tcp --module ext4 --bin mkfs.ext4 --bin e2fsck --bin nvme --bin fio \
    --append clocksource=acpi_pm --qemu -netdev --qemu user,id=n0 --qemu -device --qemu virtio-net-pci,netdev=n0,romfile= \
    --file tests/guest/parts.sh:/parts.sh --file tests/guest/tcp.sh:/tcp.sh -- "sh /tcp.sh $nqn ${addresses[0]##*:} ${addresses[1]##*:}" >"$work/said" &
guest=$!
while IFS= read -r line; do
    echo "$line"
    case $line in
        "== a file system"*) check_capture || { kill "$guest"; exit 1; } ;;
        "host: "*)
            read -r _ path fault <<<"$line"
            target/debug/reap ctl "${addresses[$path]}" fault $fault || { echo "FAILED: $line"; kill "$guest"; }
            ;;
    esac
done <"$work/said"
wait $guest || { echo "FAILED: the guest"; cat "$work/server"; exit 1; }
cat "$work/server"
grep -q "controller [0-9]* for nqn.2014-08.org.nvmexpress:uuid:11111111" "$work/server" || { echo "FAILED: the server reports no host"; exit 1; }

# Nothing happens now, and so the server does nothing.
before=$(ticks)
sleep 2
[ $(($(ticks) - before)) -le 2 ] || { echo "FAILED: the server is busy without hosts"; exit 1; }
kill -INT "$server"
wait "$server" || { echo "FAILED: Ctrl-C"; exit 1; }

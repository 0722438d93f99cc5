#!/bin/bash
# `reap serve --tcp` under the nvme-tcp host of a stock kernel, in a guest: one boot. The guest reaches this machine's loopback as 10.0.2.2.
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
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT
target/debug/reap serve "mem:64M" --tcp 127.0.0.1:0 --tcp 127.0.0.1:0 2>"$work/server" &
server=$!
for tenth in $(seq 100); do [ "$(grep -c serving "$work/server")" = 2 ] && break; sleep 0.1; done
addresses=($(sed -n 's/: serving .*//p' "$work/server"))
nqn=$(sed -n '1s/.* as //p' "$work/server")
[ ${#addresses[@]} = 2 ] || { echo "FAILED: no server"; cat "$work/server"; exit 1; }
ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }

mkfifo "$work/said"
tests/guest/run.sh --module virtio_net --module nvme-tcp --module ext4 --bin mkfs.ext4 --bin e2fsck --bin nvme --bin fio \
    --append clocksource=acpi_pm --qemu -netdev --qemu user,id=n0 --qemu -device --qemu virtio-net-pci,netdev=n0,romfile= \
    --file tests/guest/parts.sh:/parts.sh --file tests/guest/tcp.sh:/tcp.sh -- "sh /tcp.sh $nqn ${addresses[0]##*:} ${addresses[1]##*:}" >"$work/said" &
guest=$!
while IFS= read -r line; do
    echo "$line"
    case $line in
        "host: "*)
            read -r _ path fault <<<"$line"
            target/debug/reap ctl "${addresses[$path]}" fault $fault || { echo "FAILED: $line"; kill "$guest"; }
            ;;
    esac
done <"$work/said"
wait $guest || { echo "FAILED: the guest"; cat "$work/server"; exit 1; }
cat "$work/server"
grep -q "controller 1 for nqn" "$work/server" || { echo "FAILED: the server reports no host"; exit 1; }

# Nothing happens now, and so the server does nothing.
before=$(ticks)
sleep 2
[ $(($(ticks) - before)) -le 2 ] || { echo "FAILED: the server is busy without hosts"; exit 1; }
kill -INT "$server"
wait "$server" || { echo "FAILED: Ctrl-C"; exit 1; }

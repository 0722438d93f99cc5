#!/bin/bash
# `reap serve` under the nvme driver of a stock kernel, in a guest: one boot.
# REAP_SERVE_HANG=1 has the controller hang as well, until the kernel aborts and resets: the guest's clock has to keep pace with this
# machine's for that, so it is a run for a quiet machine.
# REAP_SERVE_MORE='&doorbells=mapped' adds to the device's parameters.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab
need mkfs.ext4=e2fsprogs nvme=nvme-cli fio=fio
cargo test -q --workspace --test cli --no-run || fail "cannot build the command"

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT
# How long the guest takes to boot nobody knows, so the controller hangs again and again. From a hold on each command that is sent is held, an
# abort changes nothing, and a reset forgets those that were. By the release the kernel has tried to abort some, and has reset the controller.
# A second time-out within one reset would be the kernel's end with the device, so a hang is shorter than three time-outs of 6 s.
# The guest's time has to be that of this machine: on a busy one the kernel misjudges the TSC, and its seconds are too short.
hang=
script=()
if [ -n "${REAP_SERVE_HANG:-}" ]; then
    hang=hang
    for begin in $(seq 20 40 1000); do echo "at ${begin}s path 0 hold; at $((begin + 16))s path 0 release"; done >"$work/script"
    script=(--script "$work/script")
fi
target/debug/reap serve "mem:256M?profile=optane&aborts=never${REAP_SERVE_MORE:-}" --vfio-user "$work/socket" "${script[@]}" 2>"$work/server" &
server=$!
for tenth in $(seq 100); do [ -S "$work/socket" ] && break; sleep 0.1; done

mkfifo "$work/said"
tests/guest/run.sh --vfio-user "$work/socket" --module ext4 --bin mkfs.ext4 --bin e2fsck --bin nvme --bin fio \
    --append "nvme_core.multipath=N ${hang:+nvme_core.io_timeout=6} clocksource=acpi_pm" --file tests/guest/parts.sh:/parts.sh --file tests/guest/serve.sh:/serve.sh -- "sh /serve.sh $hang" >"$work/said" &
guest=$!
while IFS= read -r line; do
    echo "$line"
    [ "$line" = "kill it now" ] && kill -9 "$server"
done <"$work/said"
wait $guest || { echo "FAILED: the guest"; cat "$work/server"; exit 1; }
grep -q "a client connected" "$work/server" || { echo "FAILED: the server reports no client"; cat "$work/server"; exit 1; }
cat "$work/server"

# What a killed server leaves behind the next one replaces; Ctrl-C removes it.
target/debug/reap serve mem:1M --vfio-user "$work/socket" 2>"$work/server" &
server=$!
for tenth in $(seq 100); do grep -q serving "$work/server" && break; sleep 0.1; done
grep -q "no server listens there any more" "$work/server" || { echo "FAILED: a socket that was left behind"; cat "$work/server"; exit 1; }
target/debug/reap serve mem:1M --vfio-user "$work/socket" 2>"$work/second" && { echo "FAILED: two servers have one socket"; exit 1; }
grep -q "another process serves at this socket" "$work/second" || { echo "FAILED: the second server says"; cat "$work/second"; exit 1; }
kill -INT "$server"
wait "$server" || { echo "FAILED: Ctrl-C"; exit 1; }
[ ! -e "$work/socket" ] || { echo "FAILED: the socket is still there"; exit 1; }

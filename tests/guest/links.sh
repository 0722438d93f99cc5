#!/bin/sh
# In the guest: the conformance suite on each of its devices, then what takes devices away.
set -u
failures=0
suite() { # suite WHAT DEVICE ARGUMENTS: all that does not make its own files
    what=$1 device=$2
    shift 2
    echo "== $what"
    began=$(cut -d. -f1 /proc/uptime)
    REAP_TEST_DEVICE=$device links --test-threads=1 --skip faults:: "$@" >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
    grep -oE 'SKIPPED: .*|^test result.*' /tmp/out
    echo "$what: $(($(cut -d. -f1 /proc/uptime) - began)) s"
}
polled() { # polled N: the first controller is probed again, with so many poll queues
    echo "$1" >/sys/module/nvme/parameters/poll_queues
    function=$(basename "$(readlink -f /sys/block/nvme0n1/device/device)")
    echo "$function" >/sys/bus/pci/drivers/nvme/unbind
    echo "$function" >/sys/bus/pci/drivers/nvme/bind
    for tenth in $(seq 100); do [ -e /dev/nvme0n1 ] && break; sleep 0.1; done
    echo "nvme0n1: io_poll $(cat /sys/block/nvme0n1/queue/io_poll)"
}
for tenth in $(seq 100); do [ -e /dev/nvme0n1 ] && [ -e /dev/nvme1n1 ] && break; sleep 0.1; done

suite "kernel:/dev/nvme0n1" kernel:/dev/nvme0n1
polled 2
suite "kernel:/dev/nvme0n1 with poll queues" kernel:/dev/nvme0n1
# Once it is served it says no longer that it is not.
if [ -e /dev/ng0n1 ] && ! REAP_TEST_DEVICE=kernel:/dev/ng0n1 links --exact data::a_request_may_take_less_than_its_buffer 2>&1 | grep -q 'is not served'; then
    suite "kernel:/dev/ng0n1" kernel:/dev/ng0n1
else
    echo "SKIPPED: /dev/ng0n1: there is none, or Reap does not serve it"
fi
mount -t configfs none /sys/kernel/config
null=/sys/kernel/config/nullb/nullb1
if mkdir $null && echo 64 >$null/size && echo 1 >$null/memory_backed && echo 1 >$null/discard && echo 1 >$null/power && [ -b /dev/nullb1 ]; then
    suite "null_blk" kernel:/dev/nullb1
else
    echo "FAILED: no null_blk that keeps data"
    failures=$((failures + 1))
fi

echo "== devices that are taken away"
REAP_TEST_DISK=nvme1n1 links --test-threads=1 --ignored faults::guest >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
grep -E '^(test )' /tmp/out
[ $failures = 0 ]

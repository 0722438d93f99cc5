#!/bin/sh
# In the guest: the conformance suite on each of its devices, what others count meanwhile, then what takes devices away.
set -u
failures=0
suite() { # suite WHAT DEVICE ARGUMENTS: all that does not make its own files and loop devices
    what=$1 device=$2
    shift 2
    echo "== $what"
    began=$(cut -d. -f1 /proc/uptime)
    REAP_TEST_DEVICE=$device links --test-threads=1 --skip faults:: --skip zeroes::a_file_ --skip zeroes::a_block_ "$@" >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
    grep -oE 'SKIPPED: .*|^test result.*' /tmp/out
    echo "$what: $(($(cut -d. -f1 /proc/uptime) - began)) s"
}
. /drives.sh
polled() { # polled N: the first controller is probed again, with so many poll queues
    echo "$1" >/sys/module/nvme/parameters/poll_queues
    function=$(basename "$(readlink -f "/sys/class/nvme/$first/device")")
    echo "$function" >/sys/bus/pci/drivers/nvme/unbind
    echo "$function" >/sys/bus/pci/drivers/nvme/bind
    first=$(by_serial LAB0)
    echo "$first: io_poll $(cat "/sys/block/${first}n1/queue/io_poll")"
}
first=$(by_serial LAB0) second=$(by_serial LAB1)

suite "NVMe" "kernel:/dev/${first}n1"
polled 2
suite "NVMe with poll queues" "kernel:/dev/${first}n1"
suite "NVMe by commands that pass through, with poll queues" "kernel:/dev/ng${first#nvme}n1"

# QEMU's own witness is its trace, which tests/links.sh reads by the numbers that `polled_requests_take_no_interrupt` leaves there.
counted() { # counted DEVICE TEST
    REAP_TEST_DEVICE=kernel:/dev/$1 links --test-threads=1 --nocapture --ignored --exact "witnesses::$2" >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
    grep -oE '(test result|counted): .*' /tmp/out
}
echo "== what others count"
counted "${first}n1" polled_requests_take_no_interrupt
counted "ng${first#nvme}n1" polled_requests_take_no_interrupt
trace completions -d "${first}n1" 600 >/tmp/traced 2>&1 &
for tenth in $(seq 200); do grep -qs '^Tracing' /tmp/traced && break; sleep 0.1; done
counted "${first}n1" kernel_counts_the_same_requests
kill -INT $! && wait $!
ours=$(sed -n 's/.*counted: all: //p' /tmp/out) theirs=$(sed -n 's/^total:.*, \([0-9]*\) completions.*/\1/p' /tmp/traced)
echo "counted: requests: $ours here, $theirs by reap trace"
# Those with which a device is opened are traced too.
if [ "${ours:-0}" = 0 ] || [ $((theirs - ours)) -lt 0 ] || [ $(((theirs - ours) * 50)) -gt "$theirs" ]; then
    failures=$((failures + 1))
    cat /tmp/traced
fi

counted "$(by_serial SLOW)n1" scheduler_counts_the_same_sleeps

mount -t configfs none /sys/kernel/config
null=/sys/kernel/config/nullb/nullb1
if mkdir $null && echo 64 >$null/size && echo 1 >$null/memory_backed && echo 1 >$null/discard && echo 1 >$null/power && [ -b /dev/nullb1 ]; then
    # Another driver below the same lane: what is the lane's own is left out.
    suite "null_blk" kernel:/dev/nullb1 data:: limits:: memory:: moving:: zeroes::
else
    echo "FAILED: no null_blk that keeps data"
    failures=$((failures + 1))
fi

echo "== devices that are taken away"
bad=$(by_serial BAD)
REAP_TEST_DISK=${second}n1 REAP_TEST_BAD=ng${bad#nvme}n1 links --test-threads=1 --ignored faults::guest >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
grep -E '^(test )' /tmp/out
[ $failures = 0 ]

#!/bin/sh
# In the guest: `reap trace` against the NVMe driver's own tracepoints and /proc/interrupts, all under the same I/O. $1: the program.
set -u
trace=$1 events=/sys/kernel/tracing/events failures=0
cd /tmp

check() { # check WHAT GOT WANTED
    if [ "$2" = "$3" ]; then echo "ok: $1: $2"; else echo "FAILED: $1: got $2, expected $3"; failures=$((failures + 1)); fi
}
start() { # start NAME ARGUMENTS: returns when it counts; one interval only
    name=$1
    shift
    $trace "$@" -d nvme0n1 600 >"$name" 2>&1 &
    echo $! >"$name.pid"
    for tenth in $(seq 100); do grep -qs '^Tracing' "$name" && return; sleep 0.1; done
    echo "FAILED: $name did not start: $(cat "$name")"
    exit 1
}
stop() { for name in "$@"; do kill -INT "$(cat "$name.pid")"; done; wait; }
interrupts() { awk -v line="$1" '$NF == line { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts; }
# Counts of a drawn histogram as "value:count …", without zeros; $2: the heading it stands under.
drawn() { awk -v head="$2" '$0 == head { on = 1; next } on && /: count/ { next } on && !/\|/ { on = 0 }
    on { split($0, part, /[:|]/); gsub(/ /, "", part[1]); if (part[2] + 0) printf "%s:%d ", part[1], part[2] }' "$1"; }
total() { awk '/^total:/ { print $2 }' "$1"; } # interrupts, or requests in `latency`
completions() { sed -n 's/^total:.*, \([0-9]*\) completions.*/\1/p' "$1"; }
# The same from the driver's trace: completions between one interrupt of a queue and its next; every N-th of them.
from_driver() { awk -v queue="$1" -v every="$2" '
    function close_cycle() { if (seen && seen % every == 0) counts[n]++; n = 0 }
    /irq_handler_entry/ && $NF == "name=nvme0q" queue { close_cycle(); seen++ }
    /nvme_sq/ && index($0, "qid=" queue ",") { n++ }
    END { close_cycle(); for (i = 0; i <= 1024; i++) if (counts[i]) printf "%d:%d ", i, counts[i] }' driver; }
load() { fio --name=load --filename=/dev/nvme0n1 --direct=1 --rw=randread --bs=4k --thread --output=fio.out "$@" || { cat fio.out; exit 1; }; }

# Two queues, from two CPUs, every tool at once.
echo 8192 >/sys/kernel/tracing/buffer_size_kb
echo 'name ~ "nvme0q*"' >$events/irq/irq_handler_entry/filter
start completions completions
start queues completions -Q
start freq completions --freq 10
start delay delay
start latency latency
before1=$(interrupts nvme0q1) before2=$(interrupts nvme0q2)
echo 1 >$events/irq/irq_handler_entry/enable
echo 1 >$events/nvme/nvme_sq/enable
load --ioengine=libaio --iodepth=32 --number_ios=3000 --numjobs=2 --cpus_allowed=0,1 --cpus_allowed_policy=split
echo 0 >/sys/kernel/tracing/tracing_on
stop completions queues freq delay latency
after1=$(interrupts nvme0q1) after2=$(interrupts nvme0q2)
cat /sys/kernel/tracing/trace >driver
check "the driver's trace lost nothing" "$(grep -c 'LOST' driver)" 0
cat completions
for queue in 1 2; do
    check "completions per interrupt of nvme0q$queue" "$(drawn completions "line = nvme0q$queue")" "$(from_driver $queue 1)"
    check "1 in 10 whole cycles of nvme0q$queue" "$(drawn freq "line = nvme0q$queue")" "$(from_driver $queue 10)"
    heading=$(grep "^queue = .*(nvme0q$queue)$" queues)
    # A queue sees no interrupt that brings it nothing.
    check "by hardware queue, nvme0q$queue" "$(drawn queues "$heading")" "$(from_driver $queue 1 | sed 's/^0:[0-9]* //')"
done
check "interrupts" "$(total completions)" $((after1 - before1 + after2 - before2))
check "completions" "$(completions completions)" 6000
check "completions with a delay" "$(completions delay)" 6000
check "requests with a latency" "$(total latency)" 6000
check "lost" "$(grep -c ' 0 lost$' completions queues freq delay latency | grep -c ':1$')" 5

# Poll queues: completions without a single interrupt.
start polled completions -Q
before1=$(interrupts nvme0q1) before2=$(interrupts nvme0q2)
load --ioengine=io_uring --hipri --iodepth=8 --number_ios=2000
stop polled
cat polled
check "interrupts while polling" "$(total polled)" $(($(interrupts nvme0q1) + $(interrupts nvme0q2) - before1 - before2))
check "polled completions" "$(sed -n 's/^total:.*[(, ]\([0-9]*\) polled.*/\1/p' polled)" 2000
check "they are a poll queue's" "$(grep -c -E '^nvme0(c0)?n1 poll queue' polled)" 1

[ $failures = 0 ] || exit 1

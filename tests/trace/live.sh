#!/bin/bash
# `reap trace` on this machine's own disk: its totals against the kernel's, its refusals, and that nothing of it stays. Needs root, fio, bpftool.
#   live.sh PROGRAM [FILE]     FILE: 256 MiB that fio may read, on a disk with hardware queues
set -uo pipefail
trace=$1 file=${2:-$(dirname "$1")/trace-live.data} failures=0
out=$(mktemp -d)
trap 'rm -rf "$out"; rm -f "$file"' EXIT

ok() { echo "ok: $*"; }
failed() { echo "FAILED: $*"; failures=$((failures + 1)); }
programs() { cat "/proc/$1/fdinfo/"* 2>/dev/null | awk '$1 == "prog_id:" { print $2 }' | sort -u; } # of a process, by the kernel's ids
remaining() { local id; for id in "$@"; do bpftool prog show id "$id" >/dev/null 2>&1 && echo "$id"; done; }
start() { # start NAME ARGUMENTS: returns when it counts
    local name=$1
    shift
    : >"$out/$name" # what the last one of this name said is no sign of this one
    "$trace" "$@" >"$out/$name" 2>&1 &
    pids[$name]=$!
    for _ in $(seq 100); do
        grep -qs '^Tracing' "$out/$name" && return
        sleep 0.1
    done
    failed "$name did not start: $(cat "$out/$name")"
}
declare -A pids

# --- totals ------------------------------------------------------------------------------------------------------------------------
# The kernel's counts are taken twice on each side: within the time that we count, and around it. Where nobody else uses the disk they are
# the same but for a few.
near() { # near WHAT OURS WITHIN AROUND: neither 2 % less nor 2 % more than the kernel
    if awk -v ours="$2" -v within="$3" -v around="$4" 'BEGIN { exit !(within > 0 && ours >= within * 0.98 && ours <= around * 1.02) }'; then
        ok "$1: $2, the kernel says $3 to $4"
    else
        failed "$1: $2, but the kernel says $3 to $4"
    fi
}
# The kernel uses the structure of a request again and again. One whose completion is not counted leaves no start behind, which the
# next user, if it is not sampled itself, would take for its own: between attaching and counting there is time for thousands.
left_behind() {
    local attached sampled outer before after=
    strace -o "$out/calls" -e trace=bpf "$trace" latency -d "$disk" 0.1 1 >/dev/null || failed "strace: $(cat "$out/calls")"
    attached=$(awk '/BPF_LINK_CREATE|BPF_RAW_TRACEPOINT_OPEN/ { n = NR } END { print n }' "$out/calls")
    some() { fio --name=load --filename="$file" --size=256m --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=32 --number_ios="$1" \
        --output="$out/fio" || failed "fio: $(cat "$out/fio")"; }
    : >"$out/sampled"
    strace -o "$out/calls" -e trace=bpf -e inject="bpf:delay_exit=8000000:when=$attached" "$trace" latency -d "$disk" --freq 50 600 >"$out/sampled" 2>&1 &
    sampled=$!
    for _ in $(seq 100); do [ "$(wc -l <"$out/calls")" -ge "$attached" ] && break; sleep 0.1; done
    some 4000
    if grep -q '^Tracing' "$out/sampled"; then
        echo "Left out: requests before the counting: 4000 took longer than 8 s"
    else
        outer=$(requests)
        until grep -q '^Tracing' "$out/sampled" || ! kill -0 $sampled 2>/dev/null; do outer=$(requests); sleep 0.05; done
        before=$(requests)
        some 20000
        after=$(requests)
    fi
    pkill -INT -P $sampled
    wait $sampled || failed "latency --freq ended with $?: $(cat "$out/sampled")"
    if [ -n "$after" ]; then
        near "latency --freq 50: requests" $((50 * $(awk '/^total:/ { print $2 }' "$out/sampled"))) $((after - before)) $(($(requests) - outer))
    fi
}
disk=$(basename "$(readlink -f "/sys/dev/block/$(stat -c '%Hd:%Ld' "$(dirname "$file")")")")
[ -e "/sys/class/block/$disk/partition" ] && disk=$(basename "$(dirname "$(readlink -f "/sys/class/block/$disk")")")
if [ ! -d "/sys/block/$disk/mq" ]; then
    echo "Left out: totals: $(dirname "$file") is on $disk, which has no hardware queue"
else
    fio --name=fill --filename="$file" --size=256m --rw=write --bs=1m --end_fsync=1 --output="$out/fill" || failed "fio: $(cat "$out/fill")"
    # Of the disk's lines, by number; their interrupts so far.
    mapfile -t lines < <("$trace" rate -d "$disk" --json "$out/lines" 0.5 1 >/dev/null; sed -n 's/.*"irq": \([0-9]*\),.*/\1/p' "$out/lines" | sort -u)
    interrupts() { awk -v lines=" ${lines[*]} " 'index(lines, " " $1 + 0 " ") && $1 ~ /^[0-9]+:$/ { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts; }
    softirqs() { awk '$1 == "BLOCK:" { for (i = 2; i <= NF; i++) sum += $i } END { print sum + 0 }' /proc/softirqs; }
    requests() { awk -v disk="$disk" '$3 == disk { print $4 + $8 + $15 + $19 }' /proc/diskstats; } # reads, writes, discards, flushes
    # Some kernels do not run BPF programs while a process of the machine's own is current. It must be said, and a run in which that
    # process was busy tells nothing: again, at most twice.
    for attempt in 1 2 3; do
        unset pids; declare -A pids
        outer=("$(interrupts)" "$(softirqs)" "$(requests)")
        start completions completions -d "$disk" 600
        start delay delay -d "$disk" 600
        start rate rate -d "$disk" 600
        start latency latency -d "$disk" 600
        before=("$(interrupts)" "$(softirqs)" "$(requests)")
        fio --name=load --filename="$file" --size=256m --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=32 --runtime=5 --time_based \
            --output="$out/fio" || failed "fio: $(cat "$out/fio")"
        after=("$(interrupts)" "$(softirqs)" "$(requests)")
        kill -INT "${pids[@]}"
        for name in "${!pids[@]}"; do wait "${pids[$name]}" || failed "$name ended with $?: $(cat "$out/$name")"; done
        theirs=($((after[0] - before[0])) $((after[1] - before[1])) $((after[2] - before[2])))
        around=($(($(interrupts) - outer[0])) $(($(softirqs) - outer[1])) $(($(requests) - outer[2])))
        lost=$(sed -n 's/^total:.*, \([0-9]*\) lost.*/\1/p' "$out/completions")
        [ "${lost:-0}" -le $((theirs[0] / 100)) ] && break
        echo "attempt $attempt: $lost of ${theirs[0]} interrupts lost"
    done
    for name in completions delay rate; do
        near "$name: interrupts" "$(awk '/^total:/ { print $2 }' "$out/$name")" "${theirs[0]}" "${around[0]}"
        near "$name: completions" "$(sed -n 's/^total:.*, \([0-9]*\) completions.*/\1/p' "$out/$name")" "${theirs[2]}" "${around[2]}"
        lost=$(sed -n 's/^total:.*, \([0-9]*\) lost.*/\1/p' "$out/$name")
        if [ "${lost:-0}" -le $((theirs[0] / 50)) ] && [ -n "$lost" ]; then ok "$name: $lost lost"; else failed "$name: $(grep '^total:' "$out/$name")"; fi
    done
    if grep -q 'interrupt -> softirq' "$out/delay"; then
        # At most one softirq was raised by an interrupt before the counting began.
        awk '/^line  / { on = 1; next } on && NF == 6 && $3 > $2 + 1 { exit 1 }' "$out/delay" || failed "delay: more softirqs than interrupts"
        near "delay: softirqs" "$(awk '/^line  / { on = 1; next } on && NF == 6 { sum += $3 } END { print sum }' "$out/delay")" "${theirs[1]}" "${around[1]}"
    else
        echo "Left out: /proc/softirqs: $disk completes in the interrupt"
    fi
    near "latency: requests" "$(awk '/^total:/ { print $2 }' "$out/latency")" "${theirs[2]}" "${around[2]}"
    cat "$out/completions"

    left_behind
fi

# --- nothing stays -----------------------------------------------------------------------------------------------------------------
unset pids; declare -A pids
for signal in INT TERM KILL; do
    start run completions
    ids=$(programs "${pids[run]}")
    [ "$(remaining $ids | wc -l)" -ge 6 ] || failed "bpftool does not see the programs ($ids) while it runs"
    kill -$signal "${pids[run]}"
    wait "${pids[run]}" 2>/dev/null
    status=$?
    for _ in $(seq 50); do [ -z "$(remaining $ids)" ] && break; sleep 0.1; done # the kernel frees programs a moment later
    if [ -n "$(remaining $ids)" ]; then failed "SIG$signal left programs attached"; else ok "SIG$signal leaves nothing attached"; fi
    [ $signal = KILL ] || [ $status = 0 ] || failed "SIG$signal: status $status"
    [ $signal = KILL ] || grep -q '^total:' "$out/run" || failed "SIG$signal: no summary"
done
"$trace" rate 0.1 >/dev/full 2>"$out/full" && failed "a full standard output is not noticed"
timeout 20 "$trace" completions 0.1 | head -1 >/dev/null
[ "${PIPESTATUS[0]}" = 0 ] && ok "it ends when its reader leaves" || failed "its reader left, and it ended with ${PIPESTATUS[0]}"
find /sys/fs/bpf -name 'reap*' 2>/dev/null | grep -q . && failed "something is pinned"

# --- refusals ----------------------------------------------------------------------------------------------------------------------
refused() { # refused WHAT PATTERN COMMAND…: one sentence that says so, and a status that is not 0
    local what=$1 pattern=$2 said status
    shift 2
    said=$(timeout 20 "$@" 2>&1 >/dev/null)
    status=$?
    if [ $status != 0 ] && [ $status != 124 ] && [ "$(echo "$said" | wc -l)" = 1 ] && echo "$said" | grep -q "$pattern"; then
        ok "$what: $said"
    else
        failed "$what: status $status, said: $said"
    fi
}
inside() { unshare -m sh -c "$1"' && shift && exec "$@"' sh x "${@:2}"; } # after changes to the mounts that only it sees
nobody() { cp "$trace" "$out/trace" && chmod 755 "$out" "$out/trace" && setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
refused "unknown device" 'no block device `nope`' "$trace" -d nope
refused "unknown line" 'no interrupt line `nope`' "$trace" --line nope
refused "no such mode" 'neither a mode' "$trace" speed
refused "unwritable file" 'cannot write' "$trace" --json /nonexistent/file 0.1 1
export trace out
export -f inside nobody
refused "no privilege" 'CAP_BPF and CAP_PERFMON' bash -c 'nobody "$out/trace"'
refused "no BTF" '/sys/kernel/btf/vmlinux is missing' bash -c 'inside "mount -t tmpfs none /sys/kernel/btf" "$trace" 0.1 1'
for hook in softirq_raise block_rq_issue; do # a kernel without it: its description with the name altered
    sed "s/btf_trace_$hook/btf_trace_${hook:0:-1}X/" /sys/kernel/btf/vmlinux >"$out/btf"
    mode=$([ $hook = block_rq_issue ] && echo latency || echo completions)
    refused "no $hook" "no tracepoint \`$hook\`, which \`$mode\` needs" bash -c "inside 'mount --bind $out/btf /sys/kernel/btf/vmlinux' $trace $mode 0.1 1"
done
if nobody --inh-caps=+bpf,+perfmon --ambient-caps=+bpf,+perfmon "$out/trace" rate 0.1 1 >"$out/caps" 2>&1; then
    ok "CAP_BPF and CAP_PERFMON suffice"
else
    failed "with CAP_BPF and CAP_PERFMON: $(cat "$out/caps")"
fi

[ $failures = 0 ]

#!/bin/sh
# In the guest: drivers that complete elsewhere than NVMe's. virtio-scsi: in the softirq, and its line has to be learnt; null_blk: without any line.
# $1: the program.
set -u
trace=$1 failures=0
cd /tmp
traced() { # traced DEVICE WANTED: 1000 completions of DEVICE, and the summary says they came as WANTED
    "$trace" completions -d "$1" 600 >out 2>&1 &
    pid=$!
    for tenth in $(seq 100); do grep -q '^Tracing' out && break; sleep 0.1; done
    fio --name=load --filename=/dev/"$1" --size=16m --direct=1 --rw=randread --bs=4k --thread --output=fio.out --ioengine=libaio --iodepth=8 \
        --number_ios=1000 || cat fio.out
    kill -INT $pid
    wait $pid
    grep -v '^ ' out
    if grep -q "^total:.*1000 completions ($2) in .* 0 lost" out; then
        echo "ok: $1: $2"
    else
        echo "FAILED: $1: expected 1000 completions ($2)"
        failures=$((failures + 1))
    fi
}
traced sda '1000 softirq'
grep -q '^virtio[0-9]*-request .* 1000 ' out || { echo "FAILED: sda's line is not named"; failures=$((failures + 1)); }
traced nullb0 '1000 elsewhere'
grep -q '^nullb0 (no line)' out || { echo "FAILED: nullb0 has no line"; failures=$((failures + 1)); }
[ $failures = 0 ]

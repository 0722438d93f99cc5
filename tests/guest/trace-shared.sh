#!/bin/sh
# In a guest with more CPUs than queues: what another CPU submitted completes there, and still belongs to the queue's line. $1: the program.
set -u
cd /tmp
"$1" completions -d nvme0n1 600 >out 2>&1 &
for tenth in $(seq 100); do grep -qs '^Tracing' out && break; sleep 0.1; done
fio --name=load --filename=/dev/nvme0n1 --direct=1 --rw=randread --bs=4k --thread --output=fio.out --ioengine=libaio --iodepth=8 \
    --number_ios=1000 --numjobs=3 --cpus_allowed=0-2 --cpus_allowed_policy=split || { cat fio.out; exit 1; }
kill -INT $!
wait
cat out
places=$(sed -n 's/^total:.* 3000 completions (\(.*\)) in .*/\1/p' out)
case $places in
    *"other CPU"*) echo "ok: of 3000 completions: $places" ;;
    *) echo "FAILED: expected 3000 completions, some of them on another CPU"; exit 1 ;;
esac
grep -q ' 0 lost$' out && awk '/^nvme0q/ { sum += $3 } END { exit sum != 3000 }' out || { echo "FAILED: not all belong to a line"; exit 1; }
echo "ok: all belong to the lines of the queues"

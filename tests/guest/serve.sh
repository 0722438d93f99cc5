#!/bin/sh
# In the guest: the kernel's driver on a controller that Reap serves. With the word `hang` it hangs for sixteen seconds of every forty.
set -u
. /parts.sh
says() { # says WORDS COMMAND…: it has to succeed and to say this
    words=$1
    shift
    "$@" >/tmp/out 2>&1 || failed "$*"
    grep -q -- "$words" /tmp/out || { failed "$* does not say: $words"; cat /tmp/out; }
}
disk=/dev/nvme0n1
[ -b $disk ] || { echo "FAILED: no $disk"; dmesg | tail -30; exit 1; }

part "what the driver sees"
dmesg | grep -q "nvme nvme0: .*queues" || failed "the driver tells of no queues"
[ "$(cat /sys/block/nvme0n1/size)" = 524288 ] || failed "the size is $(cat /sys/block/nvme0n1/size) blocks"
[ "$(cat /sys/class/nvme/nvme0/device/class)" = 0x010802 ] || failed "the class"
grep -q "PCI-MSIX.*nvme0q1" /proc/interrupts || { failed "no MSI-X vectors"; cat /proc/interrupts; }

part "nvme-cli"
says "REAP[0-9a-f]\{16\} " nvme list
says "^mn *: Reap embedded NVMe controller" nvme id-ctrl /dev/nvme0
says "^nsze *: 0x80000" nvme id-ns $disk
says "critical_warning" nvme smart-log /dev/nvme0
says "error_count" nvme error-log /dev/nvme0
says "Number of Queues" nvme get-feature /dev/nvme0 -f 7 -H

part "bytes"
head -c 16777216 /dev/urandom >/tmp/bytes
done_by "a write" dd if=/tmp/bytes of=$disk bs=64k oflag=direct
done_by "a read" dd if=$disk of=/tmp/back bs=128k count=128 iflag=direct
cmp /tmp/bytes /tmp/back || failed "other bytes were read than written"
done_by "zeroes" dd if=/dev/zero of=$disk bs=1M count=16 oflag=direct

part "a file system"
mkdir -p /mnt
done_by "mkfs" mkfs.ext4 -q $disk
done_by "mount" mount -t ext4 $disk /mnt
cp /tmp/bytes /mnt/bytes && sync && echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/bytes /mnt/bytes || failed "a file has other bytes"

part "fio with verification"
done_by fio fio --name=verified --filename=/mnt/verified --size=8m --rw=randwrite --bs=4k --direct=1 --ioengine=psync --verify=crc32c --numjobs=1

if [ "${1:-}" = hang ]; then
part "a hang, the kernel's aborts and its reset"
written=0
# It may have come in any part before: what was written then has been compared there.
while [ $written -lt 20 ] || { [ $written -lt 600 ] && ! dmesg | grep -q "reset controller"; }; do
    written=$((written + 1))
    head -c 65536 /dev/urandom >/tmp/one && cp /tmp/one /mnt/file$written && sync || failed "file $written"
    md5sum /mnt/file$written >>/tmp/sums
    sleep 0.2
done
dmesg | grep -q "timeout, aborting" || failed "no command was aborted"
dmesg | grep -q "timeout, reset controller" || failed "the controller was not reset"
dmesg | grep "nvme nvme0" | tail -5
echo 3 >/proc/sys/vm/drop_caches
md5sum -c /tmp/sums >/tmp/out 2>&1 || { failed "files after the hang"; grep -v OK /tmp/out; }
cmp /tmp/bytes /mnt/bytes || failed "an old file has other bytes after the hang"
fi
done_by "umount" umount /mnt
done_by "fsck" e2fsck -fn $disk
done_by "a reset by hand" sh -c 'echo 1 >/sys/class/nvme/nvme0/reset_controller'
done_by "a read after it" dd if=$disk of=/dev/null bs=64k count=16 iflag=direct

part "the server is killed"
echo "kill it now"
timeout 100 sh -c "while dd if=$disk of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do sleep 0.2; done" || failed "reads go on for ever"
dmesg | grep "nvme nvme0" | tail -3
[ $failures = 0 ] && echo "all of it works"
exit $failures

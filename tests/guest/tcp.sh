#!/bin/sh
# In the guest: the kernel's nvme-tcp host, and a subsystem that Reap serves at two ports of 10.0.2.2.
set -u
. /parts.sh
nqn=$1 port0=$2 port1=$3
uuid=11111111-2222-3333-4444-555555555555
host="--hostnqn nqn.2014-08.org.nvmexpress:uuid:$uuid --hostid $uuid"
for tenth in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
# Names of kernel devices: a path is nvme0 or nvme1, in the order of the connects.
connect() { # connect PORT OPTION…
    port=$1
    shift
    nvme connect -t tcp -a 10.0.2.2 -s $port -n $nqn $host --reconnect-delay 1 --ctrl-loss-tmo 600 "$@"
}
soon() { # soon WHAT CONDITION: it becomes true
    for tenth in $(seq 600); do eval "$2" && return; sleep 0.1; done
    failed "$1"
    dmesg | tail -20
}
is() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }
node=/sys/class/nvme
disk=/dev/nvme0n1

part "discovery"
nvme discover -t tcp -a 10.0.2.2 -s $port0 $host >/tmp/out 2>&1 || { failed discovery; cat /tmp/out; }
[ "$(grep -c "subnqn: *$nqn" /tmp/out)" = 2 ] || { failed "not two paths"; cat /tmp/out; }
grep -q "trsvcid: *$port1" /tmp/out || { failed "the second port is missing"; cat /tmp/out; }

part "two paths, one with both digests"
done_by "connect" connect $port0 --hdr-digest --data-digest --keep-alive-tmo 5 --nr-io-queues 2
soon "no disk" '[ -b $disk ]'
done_by "connect" connect $port1 --keep-alive-tmo 5 --nr-io-queues 2 --disable-sqflow
soon "the second path" 'is $node/nvme1/state live'
soon "its ANA state" 'is /sys/block/nvme0c1n1/ana_state optimized'
nvme list -v >/tmp/out 2>&1 || nvme list >/tmp/out 2>&1
grep -q "REAP" /tmp/out || { failed "nvme list"; cat /tmp/out; }
grep -q "CQT\|cqt" /tmp/out
nvme id-ctrl /dev/nvme0 >/tmp/out 2>&1
for words in "cntlid *: 0x" "ioccsz *: 516" "ctratt *: 0x40" "sgls *: 0x300001" "maxcmd"; do
    grep -q "$words" /tmp/out || { failed "id-ctrl does not say: $words"; cat /tmp/out; }
done

part "bytes"
head -c 4194304 /dev/urandom >/tmp/bytes
for policy in numa round-robin queue-depth; do
    echo $policy >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy || failed "policy $policy"
    done_by "a write" dd if=/tmp/bytes of=$disk bs=64k oflag=direct
    done_by "a read" dd if=$disk of=/tmp/back bs=256k count=16 iflag=direct
    cmp /tmp/bytes /tmp/back || failed "other bytes were read than written"
    done_by "zeroes" dd if=/dev/zero of=$disk bs=1M count=4 oflag=direct
done
echo round-robin >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy

part "a file system, and fio with verification"
mkdir -p /mnt
done_by "mkfs" mkfs.ext4 -q $disk
done_by "mount" mount -t ext4 -o discard $disk /mnt
cp /tmp/bytes /mnt/bytes && sync && echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/bytes /mnt/bytes || failed "a file has other bytes"
verify() { fio --name=verified --filename=/mnt/verified --size=2m --rw=randwrite --bs=4k --direct=1 --ioengine=psync --verify=crc32c --numjobs=1 "$@"; }
done_by "fio" verify

part "ANA states change under load"
verify --time_based --runtime=4 >/tmp/fio 2>&1 &
for state in non-optimized inaccessible optimized; do
    echo "host: 1 ana $state"
    soon "ANA $state" "is /sys/block/nvme0c1n1/ana_state $state"
done
wait $! || { failed "fio under ANA changes"; cat /tmp/fio; }

part "a path is lost, and returns"
verify --time_based --runtime=4 >/tmp/fio 2>&1 &
fio=$!
echo "host: 0 lost"
soon "the path is still there" 'is $node/nvme0/state connecting'
cp /tmp/bytes /mnt/more && sync || failed "a file over the other path"
echo "host: 0 back"
soon "the path does not return" 'is $node/nvme0/state live'
wait $fio || { failed "fio while a path was lost"; cat /tmp/fio; }
cmp /tmp/bytes /mnt/more || failed "a file has other bytes after the loss"

part "faults on the wire"
# Path 0 has digests. What it does wrong costs a path for a moment, and no bytes.
echo numa >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy
echo "host: 1 ana non-optimized"
soon "the second path" 'is /sys/block/nvme0c1n1/ana_state non-optimized'
uses() { # uses: reads and writes go on
    echo 3 >/proc/sys/vm/drop_caches
    cmp /tmp/few /mnt/few || failed "other bytes after: $fault"
    cp /tmp/few /mnt/again && sync && cmp /tmp/few /mnt/again || failed "a file after: $fault"
}
head -c 262144 /tmp/bytes >/tmp/few
cp /tmp/few /mnt/few && sync
fault="wrong-data-digest"
echo "host: 0 $fault"
soon "no wrong digest of data" 'dd if=$disk of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; dmesg | grep -q "data digest error"'
uses
for fault in wrong-header-digest "terminate 4" "cut 1000" drop wrong-r2t; do
    before=$(cat $node/nvme0/cntlid)
    echo "host: 0 $fault"
    soon "$fault does nothing" 'uses; [ "$(cat $node/nvme0/cntlid)" != $before ]'
    soon "the path does not return after $fault" 'is $node/nvme0/state live'
    uses
done
fault="stall 20s"
before=$(cat $node/nvme0/cntlid)
echo "host: 0 $fault"
soon "the keep alive of the host notices nothing" 'is $node/nvme0/state connecting || [ "$(cat $node/nvme0/cntlid)" != $before ]'
uses
soon "the path does not return" 'is $node/nvme0/state live'
echo "host: 1 ana optimized"
done_by "umount" umount /mnt
done_by "fsck" e2fsck -fn $disk

part "Cross-Controller Reset"
nvme id-ctrl /dev/nvme1 --raw-binary >/tmp/id
number() { od -An -tu$2 -j$1 -N$2 /tmp/id | tr -d ' '; }
[ $(number 1807 1) = 1 ] || failed "CCRL is $(number 1807 1)"
before=$(cat $node/nvme1/cntlid)
done_by "the reset" nvme admin-passthru /dev/nvme0 --opcode=0x38 --cdw10=$(($(number 135 1) << 16 | $(number 78 2))) --cdw12=$(number 136 4) --cdw13=$(number 140 4)
grep -q "0x*0*1$" /tmp/out || { failed "it was not reset at once"; cat /tmp/out; }
soon "the path does not come back" '[ "$(cat $node/nvme1/cntlid)" != $before ] && is $node/nvme1/state live'
nvme admin-passthru /dev/nvme0 --opcode=0x38 --cdw10=$(number 78 2) >/tmp/out 2>&1 && failed "another instance was reset"

part "the ghost write"
# With TP8028 and TP4129 a host waits for the lost controller to be quiet, or has it reset. The 6.12 kernel does neither.
echo numa >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy
echo "host: 1 ana non-optimized"
soon "the second path" 'is /sys/block/nvme0c1n1/ana_state non-optimized'
head -c 4096 /dev/zero | tr '\0' '\252' >/tmp/aa
head -c 4096 /dev/zero | tr '\0' '\273' >/tmp/bb
read_back() { dd if=$disk bs=4k skip=100 count=1 iflag=direct 2>/dev/null | od -An -tx1 -N1 | tr -d ' '; }
echo "host: 0 hold writes"
sleep 1
dd if=/tmp/aa of=$disk bs=4k seek=100 count=1 oflag=direct 2>/tmp/out &
sleep 1
echo "host: 0 lost"
wait $! || { failed "AA was not acknowledged"; cat /tmp/out; }
done_by "BB" dd if=/tmp/bb of=$disk bs=4k seek=100 count=1 oflag=direct
[ "$(read_back)" = bb ] || failed "BB is not read back: $(read_back)"
echo "host: 0 release"
for tenth in $(seq 100); do [ "$(read_back)" = aa ] && break; sleep 0.1; done
echo "both were acknowledged, BB last, and read back; now there is $(read_back)"
[ "$(read_back)" = aa ] || failed "no ghost write: the kernel or the server has learned something"
echo "host: 0 back"
soon "the path does not return" 'is $node/nvme0/state live'

part "disconnect"
done_by "disconnect" nvme disconnect -n $nqn
[ $failures = 0 ] && echo "all of it works"
exit $failures

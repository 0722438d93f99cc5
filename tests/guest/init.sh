#!/bin/busybox sh
# The guest's first process: mounts, loads the modules, runs /command, and reports its status through the second serial port.
/bin/busybox --install -s /bin
export PATH=/usr/local/bin:/usr/bin:/bin:/sbin HOME=/ TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
for one in "tmpfs /tmp" "tmpfs /run" "tmpfs /dev/shm" "tracefs /sys/kernel/tracing" "bpf /sys/fs/bpf"; do
    mount -t ${one% *} ${one% *} ${one#* }
done
ln -s /proc/self/fd /dev/fd
while read -r module; do insmod /modules/$module; done </modules/list
ip link set lo up
port() { echo /dev/vport*p$1; }
for tenth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -e "$(port 2)" ] && break
    sleep 0.1
done
sh /command </dev/null >$(port 1) 2>&1
echo $? >$(port 2)
sync
reboot -f

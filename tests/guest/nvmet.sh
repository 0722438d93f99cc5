#!/bin/sh
# In the guest: the kernel's NVMe/TCP target, a subsystem at two ports, the second of which is not optimised, and at the second network device if there is
# one. What is to happen comes in lines over a connection to port 9999.
set -u
nqn=$1
for tenth in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
second=10.0.2.15
if [ -e /sys/class/net/eth1 ]; then
    second=10.0.3.15
    ip link set eth1 up
    ip addr add $second/24 dev eth1
fi
mount -t configfs none /sys/kernel/config 2>/dev/null
mount -t tmpfs none /tmp
truncate -s 64M /tmp/disk
nvmet=/sys/kernel/config/nvmet
mkdir $nvmet/subsystems/$nqn || exit 3
cd $nvmet/subsystems/$nqn
echo 1 >attr_allow_any_host
mkdir namespaces/1
echo -n /tmp/disk >namespaces/1/device_path
echo 1 >namespaces/1/buffered_io
echo 1 >namespaces/1/enable || exit 3
for n in 1 2; do
    port=$nvmet/ports/$n
    mkdir $port
    echo tcp >$port/addr_trtype
    echo ipv4 >$port/addr_adrfam
    [ $n = 1 ] && echo 10.0.2.15 >$port/addr_traddr || echo $second >$port/addr_traddr
    echo $((4419 + n)) >$port/addr_trsvcid
    [ $n = 1 ] || echo non-optimized >$port/ana_groups/1/ana_state
    ln -s $nvmet/subsystems/$nqn $port/subsystems/$nqn || exit 4
done
echo READY
nc -l -p 9999 | while read -r what port argument; do
    case $what in
        ana) echo $argument >$nvmet/ports/$port/ana_groups/1/ana_state ;;
        # Its connections end, and there is no listener.
        close) rm $nvmet/ports/$port/subsystems/$nqn ;;
        open) ln -s $nvmet/subsystems/$nqn $nvmet/ports/$port/subsystems/$nqn ;;
        silent) ip link set eth0 down && sleep $argument && ip link set eth0 up && ip route add default via 10.0.2.2 ;;
        # How much later what the port sends leaves its network device.
        delay) /usr/local/bin/tc qdisc replace dev eth$((port - 1)) root netem delay $argument ;;
        quit) break ;;
    esac
    echo "$what $port $argument"
done
dmesg | grep -i nvmet | tail -5

# In the guest: fio on the kernel's driver and Reap on the same drive or, with `tcp`, target of nvmet, turn by turn. Each run stands between two marks of the
# plugin count.c, and is printed in a line.
#   beside_fio.sh ROUNDS [pcie|tcp]
set -u
. /parts.sh
. /drives.sh
job() { # job DEPTH BATCH IOS [FILE]
    printf '[job]\nioengine=io_uring\ndirect=1\nregisterfiles=1\nfixedbufs=1\nthread=1\nsize=256m\nbs=4k\nrw=randread\nnorandommap=1\nrandrepeat=0\ngtod_reduce=1\n'
    printf 'iodepth=%s\nnumber_ios=%s\n' "$1" "$3"
    [ "$2" = own ] || printf 'iodepth_batch_submit=%s\niodepth_batch_complete_min=%s\niodepth_batch_complete_max=%s\n' "$2" "$2" "$1"
    [ $# -lt 4 ] || printf 'filename=%s\n' "$4"
}
counted() { # counted WHOSE CASE IOS COMMAND…
    run="$1 $2 $3" ios=$3
    shift 3
    mark
    "$@" >/tmp/out 2>&1
    status=$?
    mark
    [ $status = 0 ] && grep -qF "total=$ios,0,0,0" /tmp/out || { failed "$run"; cat /tmp/out; }
    echo "run $run"
}
each() { # each HOW: every case, the shorter run first
    for case in $cases; do
        # shellcheck disable=SC2086
        $1 $(echo "$case" | tr , ' ')
    done
}
kernels() {
    job "$1" "$2" "$3" "$disk" >/tmp/job.fio
    counted fio "$1/$2" "$3" fio /tmp/job.fio
}
ours() {
    job "$1" "$2" "$3" >/tmp/job.fio
    counted reap "$1/$2" "$3" reap run /tmp/job.fio --device "$device" --completion $mode
}
if [ "${2:-pcie}" = pcie ]; then
    drive=$(basename "$(readlink -f "/sys/class/nvme/$(by_serial LAB0)/device")")
    device=pcie:$drive mode=poll
    cases="32,own,4000 32,own,64000 32,32,4000 32,32,64000 1,own,1000 1,own,16000"
    kernel_takes() { disk=/dev/$(by_serial LAB0)n1; }
    reap_takes() { done_by "reap bind" reap bind "$drive"; }
    reap_leaves() { done_by "reap unbind" reap unbind "$drive"; }
else
    # A namespace that costs the target least: null_blk. One CPU, so that each host has one I/O queue, and sleeps while the target works.
    nqn=nqn.2026-11.test:nvmet nvmet=/sys/kernel/config/nvmet
    device=tcp://127.0.0.1/$nqn mode=interrupt
    cases="32,own,1000 32,own,9000 32,32,1000 32,32,9000 1,own,500 1,own,4500"
    mount -t configfs none /sys/kernel/config 2>/dev/null
    mkdir $nvmet/subsystems/$nqn $nvmet/subsystems/$nqn/namespaces/1 $nvmet/ports/1
    echo 1 >$nvmet/subsystems/$nqn/attr_allow_any_host
    echo TCP0 >$nvmet/subsystems/$nqn/attr_serial
    echo -n /dev/nullb0 >$nvmet/subsystems/$nqn/namespaces/1/device_path
    echo 1 >$nvmet/subsystems/$nqn/namespaces/1/enable
    for value in trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid=4420; do echo "${value#*=}" >"$nvmet/ports/1/addr_${value%=*}"; done
    ln -s $nvmet/subsystems/$nqn $nvmet/ports/1/subsystems/$nqn
    kernel_takes() {
        done_by connect sh -c "echo transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$nqn >/dev/nvme-fabrics"
        disk=/dev/$(by_serial TCP0)n1
    }
    reap_takes() { echo 1 >"/sys/class/nvme/$(by_serial TCP0)/delete_controller"; }
    reap_leaves() { :; }
fi
for round in $(seq "$1"); do
    part "round $round"
    kernel_takes
    each kernels
    reap_takes
    each ours
    reap_leaves
done
[ $failures = 0 ]

# In the guest: fio on the kernel's driver and Reap on the same drive, turn by turn. Each run stands between two marks of the plugin count.c, and is told in a line.
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
    for case in "32 own 4000" "32 own 64000" "32 32 4000" "32 32 64000" "1 own 1000" "1 own 16000"; do
        $1 $case
    done
}
kernels() {
    job "$1" "$2" "$3" "/dev/$(by_serial LAB0)n1" >/tmp/job.fio
    counted fio "$1/$2" "$3" fio /tmp/job.fio
}
ours() {
    job "$1" "$2" "$3" >/tmp/job.fio
    counted reap "$1/$2" "$3" reap run /tmp/job.fio --device "pcie:$drive" --completion poll
}
drive=$(basename "$(readlink -f "/sys/class/nvme/$(by_serial LAB0)/device")")
for round in $(seq "$1"); do
    part "round $round"
    each kernels
    done_by "reap bind" reap bind "$drive"
    each ours
    done_by "reap unbind" reap unbind "$drive"
done
[ $failures = 0 ]

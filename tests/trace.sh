#!/bin/bash
# All tests of `reap trace`: units, this machine's disk, the kernel's NVMe driver in a guest. About a minute and a half after the build.
#   TRACE=PROGRAM tests/trace.sh     tests that program instead of the one it builds
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh
status=0

[ "$(id -u)" = 0 ] || skip "no root, which tracing needs"
need clang=clang make=make pkg-config=pkg-config /usr/include/libelf.h=libelf-dev /usr/include/zlib.h=zlib1g-dev \
    fio=fio bpftool=bpftool setpriv=util-linux strace=strace pkill=procps
cargo test -q -p reap-trace --features ebpf || exit 1
if [ -z "${TRACE:-}" ]; then
    # A copy: the next build without the feature would overwrite it.
    cargo build -q -p reap-trace --features ebpf --example trace || exit 1
    mkdir -p target/trace && cp target/debug/examples/trace target/trace/trace
    TRACE=target/trace/trace
fi

echo "== reap trace on this machine"
# Every kernel of Debian's has BTF; one that was built without cannot be traced.
if [ -e /sys/kernel/btf/vmlinux ]; then
    timeout 900 tests/trace/live.sh "$TRACE" "$PWD/target/trace/live.data" || status=1
else
    echo "Left out: this kernel has no BTF"
fi

echo "== reap trace in a guest, on the kernel's NVMe driver"
lab
guest() { tests/guest/run.sh --bin fio --bin "$TRACE" "$@" || status=1; }
guest --nvme 1 --append nvme.poll_queues=1 --file tests/guest/trace.sh:/trace.sh -- "sh /trace.sh $(basename "$TRACE")"
mkdir -p target/trace && truncate -s 64M target/trace/scsi.img
guest --module virtio_scsi --module sd_mod --module null_blk --qemu -device --qemu virtio-scsi-pci,num_queues=1 \
    --qemu -drive --qemu if=none,id=scsi,format=raw,file=target/trace/scsi.img --qemu -device --qemu scsi-hd,drive=scsi \
    --file tests/guest/trace-drivers.sh:/trace.sh -- "sh /trace.sh $(basename "$TRACE")"
guest --nvme 1 --nvme-opt max_ioqpairs=2 --smp 3,sockets=3 --file tests/guest/trace-shared.sh:/trace.sh -- "sh /trace.sh $(basename "$TRACE")"
exit $status

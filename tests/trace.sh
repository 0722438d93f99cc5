#!/bin/bash
# All tests of `reap trace`: units, this machine's disk, the kernel's NVMe driver in a guest. Installs what is missing (Debian, root), and
# says what it left out and why. About a minute and a half after the build.
#   TRACE=PROGRAM tests/trace.sh     tests that program instead of the one it builds
set -uo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: $*"; }
status=0

cargo test -q -p reap-trace || exit 1
[ "$(id -u)" = 0 ] || { skip "everything that traces: it needs root"; exit 0; }

need() { # need PROGRAM=PACKAGE…: installs the packages of the programs (or files) that are not there
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || [ -e "${pair%%=*}" ] || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} = 0 ] && return
    command -v apt-get >/dev/null || { echo "not installed: ${missing[*]}"; return 1; }
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null || { echo "cannot install ${missing[*]}"; return 1; }
}
need clang=clang make=make pkg-config=pkg-config /usr/include/libelf.h=libelf-dev /usr/include/zlib.h=zlib1g-dev ||
    { skip "everything that traces: it cannot be built here"; exit 0; }
cargo test -q -p reap-trace --features ebpf || exit 1
if [ -z "${TRACE:-}" ]; then
    # A copy: the next build without the feature would overwrite it.
    cargo build -q -p reap-trace --features ebpf --example trace || exit 1
    mkdir -p target/trace && cp target/debug/examples/trace target/trace/trace
    TRACE=target/trace/trace
fi

echo "== reap trace on this machine"
if [ ! -e /sys/kernel/btf/vmlinux ]; then
    skip "tracing this kernel: it has no BTF"
elif ! need fio=fio bpftool=bpftool setpriv=util-linux strace=strace pkill=procps; then
    skip "tracing this kernel"
else
    timeout 900 tests/trace/live.sh "$TRACE" "$PWD/target/trace/live.data" || status=1
fi

echo "== reap trace in a guest, on the kernel's NVMe driver"
export REAP_LAB=${REAP_LAB:-$PWD/target/lab}
if [ "$(uname -m)" != x86_64 ]; then
    skip "guest tests: they run an x86-64 kernel"
elif ! need fio=fio || ! timeout 300 tests/guest/setup.sh "$REAP_LAB"; then
    skip "guest tests: no kernel and QEMU from Debian's mirror"
else
    guest() { tests/guest/run.sh --bin fio --bin "$TRACE" "$@" || status=1; }
    guest --nvme 1 --append nvme.poll_queues=1 --file tests/guest/trace.sh:/trace.sh -- "sh /trace.sh $(basename "$TRACE")"
    mkdir -p target/trace && truncate -s 64M target/trace/scsi.img
    guest --module virtio_scsi --module sd_mod --module null_blk --qemu -device --qemu virtio-scsi-pci,num_queues=1 \
        --qemu -drive --qemu if=none,id=scsi,format=raw,file=target/trace/scsi.img --qemu -device --qemu scsi-hd,drive=scsi \
        --file tests/guest/trace-drivers.sh:/trace.sh -- "sh /trace.sh $(basename "$TRACE")"
    guest --nvme 1 --nvme-opt max_ioqpairs=2 --smp 3,sockets=3 --file tests/guest/trace-shared.sh:/trace.sh -- "sh /trace.sh $(basename "$TRACE")"
fi
exit $status

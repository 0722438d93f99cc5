#!/bin/bash
# The conformance suite on the devices of a guest: NVMe with and without poll queues, NVMe's character device, null_blk, device-mapper;
# and what a machine that is shared does not allow (tests/links/faults/guest.rs). One boot.
# REAP_SUITE=sid REAP_LAB=target/lab-sid tests/links.sh: the same on Debian's newest kernel, which has hybrid IOPOLL.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab "${REAP_SUITE:-bookworm-backports}"
need dmsetup=dmsetup losetup=mount setpriv=util-linux strip=binutils clang=clang make=make pkg-config=pkg-config \
    /usr/include/libelf.h=libelf-dev /usr/include/zlib.h=zlib1g-dev

program=$(cargo test -q --workspace --test links --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*links-[^"]*\)".*/\1/p' | tail -1)
[ -n "$program" ] || fail "cannot build the suite"
mkdir -p target/links
strip -o target/links/links "$program"
# One more witness.
cargo build -q -p reap-trace --features ebpf --example trace || fail "cannot build reap trace"
strip -o target/links/trace target/debug/examples/trace

# A third controller has a block that cannot be read, a fourth takes five milliseconds for each request.
truncate -s 16M target/links/bad.img
printf '[inject-error]\nevent = "none"\niotype = "read"\nerrno = "5"\nsector = "2048"\n' >target/links/bad.conf
rm -f target/links/qemu.trace
tests/guest/run.sh --nvme 2 --append nvme_core.multipath=N --module null_blk --module dm_mod --bin target/links/links --bin "$(command -v dmsetup)" \
    --bin "$(command -v setpriv)" --bin target/links/trace \
    --qemu -drive --qemu if=none,id=bad,format=raw,file=blkdebug:target/links/bad.conf:target/links/bad.img --qemu -device --qemu nvme,serial=BAD,drive=bad \
    --qemu -drive --qemu if=none,id=slow,driver=null-co,size=64M,latency-ns=5000000,read-zeroes=on --qemu -device --qemu nvme,serial=SLOW,drive=slow \
    --qemu -trace --qemu enable=pci_nvme_irq_msix --qemu -trace --qemu enable=pci_nvme_identify_ns --qemu -D --qemu target/links/qemu.trace \
    --file tests/guest/drives.sh:/drives.sh --file tests/guest/links.sh:/links.sh -- "sh /links.sh" || exit

# Interrupts of I/O queues between two Identify with numbers that no namespace has: 1000 and 1001 about what is polled, 2000 and 2001 about
# the same with interrupts, 3000 and 3001 about the kernel's own polling: IOPOLL, and from Linux 6.13 on hybrid IOPOLL. Vector 0 is the
# admin queue's.
awk '/identify_ns/ { within = 0 } /identify_ns.* (1000|2000|3000)$/ { within = $NF; stretches[within]++ }
    /irq_msix/ && within && $NF > 0 { interrupts[within]++ }
    END {
        print "QEMU: " interrupts[1000] + 0 " interrupts in " stretches[1000] + 0 " polled stretches, " interrupts[3000] + 0 " in " stretches[3000] + 0 \
            " that the kernel polls, " interrupts[2000] + 0 " in " stretches[2000] + 0 " others"
        exit !(stretches[1000] == 2 && stretches[2000] == 2 && stretches[3000] >= 2 && interrupts[1000] + interrupts[3000] == 0 && interrupts[2000] > 0)
    }' target/links/qemu.trace || fail "polled requests take interrupts, or none are seen at all"

#!/bin/bash
# `pcie:` on QEMU's NVMe behind an IOMMU, in a guest: one boot.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab
# nvme-cli is one more witness.
need setpriv=util-linux strip=binutils nvme=nvme-cli

program=$(cargo test -q --workspace --test links --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*links-[^"]*\)".*/\1/p' | tail -1)
[ -n "$program" ] && cargo test -q --workspace --test cli --no-run || fail "cannot build the suite and the command"
out=target/pcie
mkdir -p $out
strip -o $out/links "$program"
strip -o $out/reap target/debug/reap
rm -f $out/qemu.trace

# Beside two drives: one of two queue pairs, one that takes two seconds for each request, two that are functions of one device.
null() { # null SERIAL OPTIONS DRIVE-OPTIONS
    echo "--qemu -drive --qemu if=none,id=${1,,},driver=null-co,size=64M,read-zeroes=on$3 --qemu -device --qemu nvme,serial=$1,drive=${1,,}$2"
}
truncate -s 64M $out/few.img
tests/guest/run.sh --iommu --tcg single --nvme 2 --append nvme_core.multipath=N --bin $out/links --bin $out/reap --bin "$(command -v setpriv)" --bin nvme \
    --qemu -drive --qemu if=none,id=few,format=raw,file=$out/few.img --qemu -device --qemu nvme,serial=FEW,drive=few,max_ioqpairs=2,msix_qsize=3 \
    $(null SLOW "" ,latency-ns=2000000000) $(null TWIN0 ,addr=1d.0,multifunction=on "") $(null TWIN1 ,addr=1d.1 "") \
    --qemu -trace --qemu "enable=pci_nvme_mmio_doorbell_*" --qemu -trace --qemu enable=pci_nvme_irq_msix --qemu -trace --qemu enable=pci_nvme_map_sgl --qemu -trace --qemu enable=pci_nvme_identify_ns \
    --qemu -D --qemu $out/qemu.trace --file tests/guest/drives.sh:/drives.sh --file tests/guest/parts.sh:/parts.sh --file tests/guest/pcie.sh:/pcie.sh -- "sh /pcie.sh" | tee $out/said
[ "${PIPESTATUS[0]}" = 0 ] || exit 1

# Between two marks QEMU has seen as many doorbells of I/O queues as Reap has counted; where they are kept in memory, as many as it wrote to registers. Of the messages that it has sent some are one interrupt
# by the time that a CPU takes it, which the local APIC keeps as one bit; while polling there is none. Each long command's data are named by an SGL, unless nobody wants that.
awk 'NR == FNR { if ($1 == "counted:") { sq[$2] = $3; cq[$2] = $4; messages[$2] = $5; marks++ } if ($1 == "kept:") { registers[$2] = $3; moved[$2] = $4 } if ($1 == "named:") { named[$2] = $3 } next }
    /identify_ns/ { within = 0 } /identify_ns.* (1000|2000|3000|4000|5000|6000|7000|8000)$/ { within = $NF }
    within && /mmio_doorbell_sq/ && !/sqid 0 / { seen_sq[within]++ }
    within && /mmio_doorbell_cq/ && !/cqid 0 / { seen_cq[within]++ }
    within && /map_sgl/ { seen_sgls[within]++ }
    within && /irq_msix/ && $NF > 0 { seen_messages[within]++ }
    END {
        for (mark in sq) {
            print "QEMU: " seen_sq[mark] + 0 " and " seen_cq[mark] + 0 " doorbells, " seen_messages[mark] + 0 " messages; Reap: " sq[mark] " and " cq[mark] ", " messages[mark]
            wrong += seen_sq[mark] + 0 != sq[mark] || seen_cq[mark] + 0 != cq[mark] || seen_messages[mark] + 0 < messages[mark]
        }
        for (mark in registers) {
            print "QEMU: " seen_sq[mark] + seen_cq[mark] " doorbells, of " moved[mark] " that moved in memory; Reap: " registers[mark]
            wrong += seen_sq[mark] + seen_cq[mark] != registers[mark] || registers[mark] + 0 > moved[mark] + 0
            spared += moved[mark] - registers[mark]; kept++
        }
        for (mark in named) {
            print "QEMU: " seen_sgls[mark] + 0 " SGLs; Reap: " named[mark]
            wrong += seen_sgls[mark] + 0 != named[mark]
        }
        exit !(named[7000] == 40 && 8000 in named && marks == 4 && kept == 2 && spared > 0 && !wrong && seen_messages[1000] + 0 == 0 && messages[2000] > 0)
    }' $out/said $out/qemu.trace || fail "QEMU and Reap count otherwise"

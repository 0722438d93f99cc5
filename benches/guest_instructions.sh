#!/bin/bash
# Instructions per I/O, the kernel's included, in one guest and on the same drive: `pcie:` in the mode `poll`, and fio's io_uring on the kernel's driver.
# With `tcp`: `tcp:` in the mode `interrupt`, and fio's io_uring on the kernel's nvme-tcp, over the guest's loopback; the share of the target, nvmet on
# null_blk, is in both.
#   benches/guest_instructions.sh [ROUNDS (10)] [pcie|tcp]
# A plugin of QEMU's counts what the guest's only CPU executes (benches/guest/count.c), and looks in vain apart. The job is 4 KiB random reads with
# `gtod_reduce`, files and buffers registered. A figure is what an I/O of a longer run takes more than in a shorter one: the median of the rounds, and their range.
# The drive has doorbells in registers only, as physical ones have. The kernel passes addresses through (iommu=pt), without a mapping for each I/O.
# It takes fio, gcc, and what tests/guest/setup.sh does: 5 to 10 minutes. Another program than target/release/reap: REAP=PATH.
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10} link=${2:-pcie} out=target/guest-instructions reap=${REAP:-}
export REAP_LAB=${REAP_LAB:-$PWD/target/lab}
for tool in fio gcc strip; do command -v $tool >/dev/null || { echo "$tool is not there" >&2; exit 1; }; done
timeout 300 tests/guest/setup.sh "$REAP_LAB" || exit 1
[ -n "$reap" ] || { cargo build -q --release -p reap-nvme-cli && reap=${CARGO_TARGET_DIR:-target}/release/reap; } || exit 1
mkdir -p $out
gcc -O2 -Wall -shared -fPIC -fvisibility=hidden -o $out/count.so benches/guest/count.c && gcc -O2 -DMARK -static -nostdlib -o $out/mark benches/guest/count.c &&
    strip -o $out/reap "$reap" || exit 1
case $link in
    pcie) guest=(--iommu --append iommu=pt --nvme 1 --nvme-opt dbcs=off) ;;
    tcp) guest=(--module nvmet-tcp --module nvme-tcp --module null_blk) ;;
    *) echo "pcie or tcp" >&2; exit 2 ;;
esac
tests/guest/run.sh "${guest[@]}" --tcg single --smp 1 --mem 1536 --timeout "${REAP_GUEST_TIMEOUT:-1800}" --append nvme_core.multipath=N \
    --bin fio --bin $out/reap --bin $out/mark --qemu -plugin --qemu "$out/count.so,out=$out/counts" \
    --file tests/guest/drives.sh:/drives.sh --file tests/guest/parts.sh:/parts.sh --file benches/guest/beside_fio.sh:/beside_fio.sh -- "sh /beside_fio.sh $rounds $link" | tee $out/said
[ "${PIPESTATUS[0]}" = 0 ] || exit 1

# Marks come in pairs, in the order of the runs; of each case the shorter run comes first.
paste -d' ' <(grep '^run ' $out/said) <(paste -d' ' - - <$out/counts) | awk '
    function order(values, n, i, j, kept) { for (i = 2; i <= n; i++) { kept = values[i]; for (j = i - 1; j && values[j] > kept; j--) values[j + 1] = values[j]; values[j + 1] = kept } }
    function told(format, of, key, n, i, values) {
        for (i = 1; i <= n; i++) values[i] = of[key, i]
        order(values, n)
        return sprintf(format " (" format "–" format ")", n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2, values[1], values[n])
    }
    NF != 16 { print "FAILED: a run without its two marks: " $0; wrong = 1; exit 1 }
    {
        key = $2 " " $3
        for (i = 0; i < 4; i++) run[i] = $(11 + i) - $(5 + i)
        if ($2 == "reap" && $15 > longest) longest = $15
        if ($2 == "reap" && (!shortest || $16 < shortest)) shortest = $16
        if (!(key in before)) {
            before[key] = $4
            for (i = 0; i < 4; i++) short[key, i] = run[i]
            next
        }
        ios = $4 - before[key]
        delete before[key]
        n = ++rounds[key]
        for (i = 0; i < 4; i++) run[i] = (run[i] - short[key, i]) / ios
        mine = $2 == "reap"
        user[key, n] = run[0] - (mine ? run[3] : 0)
        kernel[key, n] = run[1]
        all[key, n] = user[key, n] + kernel[key, n]
        looks[key, n] = run[2]
        if (mine) {
            each[key, n] = run[2] ? run[3] / run[2] : 0
            ratio[key, n] = all[key, n] / all["fio " $3, n]
        }
        cases[$3]
    }
    END {
        if (wrong) exit 1
        for (i = split("32/own 32/32 1/own", names); i; i--) sorted[i] = names[i]
        for (i = 1; i in sorted; i++) {
            name = sorted[i]
            if (!rounds["reap " name]) continue
            n = rounds["reap " name]
            print "depth/batch " name ", " n " rounds, instructions per I/O"
            print "  fio:  all " told("%.0f", all, "fio " name, n) "; user " told("%.0f", user, "fio " name, n) "; kernel " told("%.0f", kernel, "fio " name, n)
            print "  Reap: all " told("%.0f", all, "reap " name, n) "; user " told("%.0f", user, "reap " name, n) "; kernel " told("%.0f", kernel, "reap " name, n)
            print "        looks in vain, apart: " told("%.1f", looks, "reap " name, n) " of " told("%.1f", each, "reap " name, n) " instructions"
            print "  Reap ÷ fio: " told("%.3f", ratio, "reap " name, n)
        }
        print "the longest look in vain: " longest " instructions; the shortest stretch with something else between two looks in vain: " shortest
    }'

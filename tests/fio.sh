#!/usr/bin/env bash
# What Reap writes with verify= is accepted by fio, and what fio writes is accepted by Reap: both on one file. fio is Debian's;
# installed if this is Debian and root.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v fio >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y --no-install-recommends fio >/dev/null || true
fi
if ! command -v fio >/dev/null; then
    echo "SKIPPED: verification together with fio: there is no fio here; install Debian's package fio"
    exit 0
fi
# fio 3.41 changed the header: its write numbers are longer.
version=$(fio --version | sed 's/^fio-//; s/[^0-9.].*//')
if [ "$(printf '%s\n' "$version" 3.41 | sort -V | head -1)" = 3.41 ]; then
    echo "SKIPPED: verification together with fio: fio $version has another header than fio 3.33 to 3.40"
    exit 0
fi

cargo build --quiet -p cli --bin reap
reap="$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/reap"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
disk="$place/disk"

fail() {
    echo "FAILED: $*" >&2
    tail -20 "$place/said" | sed 's/^/    /' >&2
    exit 1
}

# The same job for each of them: Reap's device is the file, fio's filename is.
run_reap() { (cd "$place" && "$reap" run "$1" --device "file:disk?size=16M" --completion interrupt) >"$place/said" 2>&1; }
run_fio() {
    printf '[global]\nfilename=%s\nioengine=psync\n' "$disk" | cat - "$1" >"$1.fio"
    (cd "$place" && fio "$1.fio") >"$place/said" 2>&1
}

fresh() { rm -f "$disk" && truncate -s 16M "$disk"; }

# job NAME OPTIONS…: the writing job and the one that only verifies, each with two threads at offsets, in order and at random, and
# mixed jobs, of which fio compares the seeds in the headers.
job() {
    local name=$1 common
    shift
    common=$(printf '%s\n' '[global]' 'size=512k' 'bs=4k' "$@")
    for what in do_verify=0 verify_only=1; do
        printf '%s\n%s\n' "$common" "$what"
        printf '%s\n' '[ordered]' rw=write numjobs=2 offset_increment=1m '[random]' rw=randwrite offset=4m numjobs=2 offset_increment=1m \
            '[mixed]' rw=rw offset=8m '[mixed-random]' rw=randrw offset=9m rwmixread=30
    done >"$place/$name.both"
    awk -v base="$place/$name" '/^\[global\]/ { n++ } { print > (base (n == 1 ? ".write" : ".check")) }' "$place/$name.both"
}

# Both directions.
agree() {
    local name=$1
    for pair in 'reap fio' 'fio reap'; do
        read -r writer checker <<<"$pair"
        fresh
        "run_$writer" "$place/$name.write" || fail "$name: $writer does not write"
        "run_$checker" "$place/$name.check" || fail "$name: $checker refuses what $writer wrote"
    done
    echo "agreed: $name"
}

for kind in crc32c crc32 md5 sha256 xxhash meta; do
    job "$kind" "verify=$kind"
    agree "$kind"
done
job pattern verify=pattern 'verify_pattern=0xdeadface%o"text"-7'
agree pattern
job pattern-and-header 'verify_pattern=%o0x01020304'
agree pattern-and-header
job pattern-and-checksum verify=md5 verify_pattern=0xcafe
agree pattern-and-checksum
job intervals verify=crc32c verify_interval=512 verify_offset=64
agree intervals
job lengths verify=xxhash bsrange=512-8k
agree lengths
job shares verify=crc32c bssplit=512/20:4k/50:8k/30
agree shares
job wide verify=crc32c random_generator=tausworthe64
agree wide
job seeded verify=crc32c randseed=4711
agree seeded
job all-repeated verify=crc32c allrandrepeat=1
agree all-repeated

# unmixed FILE: the job without its mixed sections.
unmixed() { awk '/^\[/ { keep = $0 !~ /^\[mixed/ } keep' "$1" >"$1.kept" && mv "$1.kept" "$1"; }

# Without a map, and with a shift register, fio itself goes through mixed writes in another order than it wrote them.
for option in norandommap=1 random_generator=lfsr; do
    name=${option%%=*}
    job "$name" verify=crc32c "$option"
    unmixed "$place/$name.write"
    unmixed "$place/$name.check"
    agree "$name"
done

# refused CHECKER JOB WORDS…: the checker fails, and says all the words.
refused() {
    local checker=$1 job=$2
    shift 2
    if "run_$checker" "$place/$job"; then fail "$checker accepts what it should refuse ($*)"; fi
    for words; do
        grep -qF -- "$words" "$place/said" || fail "$checker does not say: $words"
    done
}

# Another seed of the data: the offsets stay, the headers' seeds do not.
sed 's/^\[global\]/[global]\nrandseed=5/' "$place/crc32c.check" >"$place/reseeded"
fresh
run_reap "$place/crc32c.write" || fail "reap does not write"
refused fio reseeded "bad header rand_seed"
refused reap reseeded "the header's seed is" "wanted" "on file:disk"
fresh
run_fio "$place/crc32c.write" || fail "fio does not write"
refused reap reseeded "the header's seed is" "another job's"
# A mixed job with another seed writes elsewhere, too.
sed 's/^\[global\]/[global]\nverify_header_seed=0/' "$place/reseeded" >"$place/unseeded"
unmixed "$place/unseeded"
run_reap "$place/unseeded" || fail "reap compares seeds although it should not"

# flip AT: the byte there becomes another one.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$1" -N 1 "$disk")
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o' $((byte ^ 0x10)))" | dd of="$disk" bs=1 seek="$1" conv=notrunc status=none
}

# A byte of the data, of the header and of the magic, in what either of them wrote; 4194304 is the first random job's.
printf '%s\n' '[reader]' rw=read bs=4k offset=4m size=512k verify=crc32c >"$place/reader"
for writer in reap fio; do
    fresh
    "run_$writer" "$place/crc32c.write" || fail "$writer does not write"
    for checker in reap fio; do "run_$checker" "$place/reader" || fail "$checker does not read what $writer wrote"; done
    flip $((4194304 + 7 * 4096 + 1234))
    for job in crc32c.check reader; do
        refused fio "$job" "verify failed at file $disk offset 4222976, length 4096"
        refused reap "$job" "on file:disk" "at offset 4222976, length 4096: crc32c is 0x" "byte 1234 is 0x" "err=84"
    done
    flip $((4194304 + 7 * 4096 + 1234))
    flip $((4194304 + 9 * 4096 + 16))
    refused fio crc32c.check "bad header"
    refused reap crc32c.check "at offset 4231168, length 4096: the verify header's own checksum is wrong"
    flip $((4194304 + 9 * 4096 + 16))
    flip $((4194304 + 5 * 4096))
    refused fio crc32c.check "bad magic header"
    refused reap crc32c.check "at offset 4214784, length 4096: no verify header (bad magic 0x"
    echo "found: flipped bytes in what $writer wrote"
done

fresh
run_reap "$place/pattern.write" || fail "reap does not write"
flip $((4194304 + 100))
refused fio pattern.check "bad pattern block offset 100"
refused reap pattern.check "at offset 4194304, length 4096: the pattern is interrupted: byte 100 is 0x"
echo "found: a flipped byte in a pattern"

#!/usr/bin/env bash
# What Reap writes with verify= is accepted by fio, and what fio writes is accepted by Reap: both on one file.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

need fio=fio
# fio 3.41 changed the header: its write numbers are longer.
version=$(fio --version | sed 's/^fio-//; s/[^0-9.].*//')
if [ "$(printf '%s\n' "$version" 3.41 | sort -V | head -1)" = 3.41 ]; then
    skip "fio $version has another header than fio 3.33 to 3.40"
fi

cargo test --quiet --workspace --test cli --no-run
cargo build --quiet --workspace --example fio_peer
target="$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug"
reap="$target/reap"

# The I/Os and files of random jobs, compared with fio's. docs/fio-jobs.md has the command for more of them.
"$target/examples/fio_peer" "$reap" 50 7
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

# sections FILE BASE NAME OPTIONS…: from BASE MiB on, in 3 MiB, jobs of two threads at offsets, in order and at random, and mixed
# jobs, of which fio compares the seeds in the headers. FILE.write writes, FILE.check only verifies.
sections() {
    local file=$1 base=$(($2 * 1024)) name=$3
    shift 3
    local places=("ordered-$name" "rw=write" "numjobs=2" "offset=${base}k"
        "random-$name" "rw=randwrite" "numjobs=2" "offset=$((base + 1024))k"
        "mixed-$name" "rw=rw" "rwmixread=50" "offset=$((base + 2048))k"
        "mixed-random-$name" "rw=randrw" "rwmixread=30" "offset=$((base + 2560))k")
    for ((at = 0; at < ${#places[@]}; at += 4)); do
        # Without a map, and with a shift register, fio itself goes through mixed writes in another order than it wrote them.
        [[ ${places[at]} == mixed-* && "$*" =~ norandommap|lfsr ]] && continue
        for part in write:do_verify=0 check:verify_only=1; do
            printf '%s\n' "[${places[at]}]" size=256k bs=4k offset_increment=512k "${places[@]:at+1:3}" "$@" "${part#*:}" >>"$place/$file.${part%%:*}"
        done
    done
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
    echo "agreed: $(sed -n 's/^\[ordered-\(.*\)\]/\1/p' "$place/$name.write" | paste -sd ' ')"
}

base=0
for kind in crc32c md5 sha256 xxhash; do
    sections kinds $base $kind "verify=$kind"
    base=$((base + 3))
done
agree kinds

sections patterns 3 pattern verify=pattern 'verify_pattern=0xdeadface%o"text"-7'
sections patterns 6 pattern-and-header 'verify_pattern=%o0x01020304'
sections patterns 9 pattern-and-checksum verify=md5 verify_pattern=0xcafe
sections patterns 12 intervals verify=crc32c verify_interval=512 verify_offset=64
agree patterns

sections dice 0 lengths verify=xxhash bsrange=512-8k
sections dice 3 shares verify=crc32c bssplit=512/20:4k/50:8k/30
sections dice 6 wide verify=crc32c random_generator=tausworthe64
sections dice 9 seeded verify=crc32c randseed=4711
agree dice

sections maps 0 norandommap verify=crc32c norandommap=1
sections maps 3 lfsr verify=crc32c random_generator=lfsr
agree maps

# refused CHECKER JOB WORDS…: the checker fails, and says all the words.
refused() {
    local checker=$1 job=$2
    shift 2
    if "run_$checker" "$place/$job"; then fail "$checker accepts what it should refuse ($*)"; fi
    for words; do
        grep -qF -- "$words" "$place/said" || fail "$checker does not say: $words"
    done
}

# Another seed of the data: the offsets of a first thread stay, the headers' seeds do not.
sections one 0 crc32c verify=crc32c
sections other 0 crc32c verify=crc32c randseed=5
fresh
run_reap "$place/one.write" || fail "reap does not write"
refused fio other.check "bad header rand_seed"
refused reap other.check "the header's seed is" "wanted" "on file:disk"
fresh
run_fio "$place/one.write" || fail "fio does not write"
refused reap other.check "the header's seed is" "another job's"
printf '%s\n' '[ordered]' rw=write size=256k bs=4k verify=crc32c randseed=5 verify_only verify_header_seed=0 >"$place/unseeded"
run_reap "$place/unseeded" || fail "reap compares seeds although it should not"

# flip AT: the byte there becomes another one.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$1" -N 1 "$disk")
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o' $((byte ^ 0x10)))" | dd of="$disk" bs=1 seek="$1" conv=notrunc status=none
}

# A byte of the data, of the header and of the magic, in what either of them wrote at random from 1 MiB on.
printf '%s\n' '[reader]' rw=read bs=4k offset=1m size=256k verify=crc32c >"$place/reader"
at() { echo $((1048576 + $1 * 4096 + $2)); }
for writer in reap fio; do
    fresh
    "run_$writer" "$place/one.write" || fail "$writer does not write"
    for checker in reap fio; do "run_$checker" "$place/reader" || fail "$checker does not read what $writer wrote"; done
    flip "$(at 7 1234)"
    for job in one.check reader; do
        refused fio $job "verify failed at file $disk offset $(at 7 0), length 4096"
        refused reap $job "on file:disk" "at offset $(at 7 0), length 4096: crc32c is 0x" "byte 1234 is 0x" "err=84"
    done
    flip "$(at 7 1234)"
    flip "$(at 9 16)"
    refused fio one.check "bad header"
    refused reap one.check "at offset $(at 9 0), length 4096: the verify header's own checksum is wrong"
    flip "$(at 9 16)"
    flip "$(at 5 0)"
    refused fio one.check "bad magic header"
    refused reap one.check "at offset $(at 5 0), length 4096: no verify header (bad magic 0x"
    echo "found: flipped bytes in what $writer wrote"
done

fresh
run_reap "$place/patterns.write" || fail "reap does not write"
# The first random write of the pattern without a header.
flip $((4194304 + 100))
refused fio patterns.check "bad pattern block offset 100"
refused reap patterns.check "at offset 4194304, length 4096: the pattern is interrupted: byte 100 is 0x"
echo "found: a flipped byte in a pattern"

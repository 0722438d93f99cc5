#!/bin/bash
# The conformance suite on the devices of a guest: NVMe with and without poll queues, NVMe's character device, null_blk, device-mapper;
# and what a machine that is shared does not allow (tests/links/faults/guest.rs). One boot. Says what it left out and why.
set -uo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: $*"; exit 0; }

need() { # need PROGRAM=PACKAGE…: installs the packages of the programs that are not there
    local missing=() pair
    for pair in "$@"; do command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}"); done
    [ ${#missing[@]} = 0 ] && return
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "not installed: ${missing[*]}"; return 1; }
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null || { echo "cannot install ${missing[*]}"; return 1; }
}

export REAP_LAB=${REAP_LAB:-$PWD/target/lab}
[ "$(uname -m)" = x86_64 ] || skip "guest tests: they run an x86-64 kernel"
need dmsetup=dmsetup losetup=mount setpriv=util-linux strip=binutils || skip "guest tests"
timeout 300 tests/guest/setup.sh "$REAP_LAB" || skip "guest tests: no kernel and QEMU from Debian's mirror"

program=$(cargo test -q -p reap --test links --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*links-[^"]*\)".*/\1/p' | tail -1)
[ -n "$program" ] || { echo "cannot build the suite"; exit 1; }
mkdir -p target/links
strip -o target/links/links "$program"
tests/guest/run.sh --timeout 480 --nvme 2 --append nvme_core.multipath=N --module null_blk --module dm_mod --bin target/links/links --bin "$(command -v dmsetup)" \
    --file tests/guest/links.sh:/links.sh -- "sh /links.sh"

#!/bin/bash
# Pools of huge pages, in a guest that has some set aside: this machine may have none, and is left as it is. Half a minute after
# QEMU and the kernel are there, which setup.sh fetches once.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

lab

tests=$(cargo test --workspace --lib --no-run 2>&1 | sed -n 's/^ *Executable .*(\(.*\/hw-.*\))$/\1/p')
[ -n "$tests" ] || fail "the tests of \`hw\` do not build"
told=$(tests/guest/run.sh --append hugepages=8 --bin "$tests" -- "$(basename "$tests") dma:: --nocapture --test-threads=1")
status=$?
echo "$told"
[ $status = 0 ] || exit $status
grep -q "8 huge pages set aside: HugeMemfd, of pages of 2048 kB" <<<"$told" || fail "the pool is not of huge pages"

#!/usr/bin/env bash
# Flush and FUA on `file:` as the kernel sees them, by strace.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

need strace=strace
if ! strace -qq -o /dev/null true; then
    [ "$(id -u)" = 0 ] && fail "strace cannot trace"
    skip "no root, and other users may not trace here"
fi
cargo test --quiet --workspace --test durability -- --ignored --skip child

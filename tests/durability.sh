#!/usr/bin/env bash
# Flush and FUA on `file:` as the kernel sees them, by strace; installed if this is Debian and root.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v strace >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y --no-install-recommends strace >/dev/null || true
fi
if ! strace -qq -o /dev/null true 2>/dev/null; then
    echo "SKIPPED: flushes as the kernel sees them: there is no strace here, or it may not trace"
    exit 0
fi
cargo test --quiet -p reap-nvme --test durability -- --ignored --skip child

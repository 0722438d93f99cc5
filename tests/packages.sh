#!/bin/bash
# Each crate is packed with the texts of its licences.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

for manifest in crates/*/Cargo.toml; do
    files=$(cargo package --quiet --list --allow-dirty --manifest-path "$manifest") || fail "cargo package --list: $manifest"
    for text in LICENSE-MIT LICENSE-APACHE; do
        grep -qx $text <<<"$files" && cmp -s $text "${manifest%/*}/$text" || fail "${manifest%/*} is packed without $text: ln -s ../../$text ${manifest%/*}/"
    done
done
echo "ok: $(ls -d crates/*/ | wc -l) crates with both licences"

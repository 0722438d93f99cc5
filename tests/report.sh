#!/usr/bin/env bash
# The pages of --html as a browser shows them, by headless Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

browser() { command -v chromium || command -v chromium-browser || command -v google-chrome || true; }

[ -n "$(browser)" ] || need chromium=chromium
# A browser and a comparison each: as many at a time as there are CPUs, or blocks have too few I/Os for a figure.
unset RUST_TEST_THREADS
REAP_CHROMIUM="$(browser)" timeout 900 cargo test --quiet --workspace --test report -- --ignored

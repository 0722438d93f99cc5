#!/usr/bin/env bash
# The pages of --html as a browser shows them, by headless Chromium; installed if this is Debian and root.
set -euo pipefail
cd "$(dirname "$0")/.."

browser() { command -v chromium || command -v chromium-browser || command -v google-chrome || true; }

if [ -z "$(browser)" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null || true
fi
if [ -z "$(browser)" ]; then
    echo "SKIPPED: reports as a browser shows them: there is no chromium here (Debian: apt-get install chromium)"
    exit 0
fi
REAP_CHROMIUM="$(browser)" timeout 900 cargo test --quiet -p reap-nvme-cli --test report -- --ignored

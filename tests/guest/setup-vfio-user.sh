#!/bin/bash
# setup-vfio-user.sh DIR: a QEMU with the device `vfio-user-pci`, with all the libraries that it needs, unpacked into DIR/vfio-user from the
# machine's own Debian mirror. Nothing of it is installed. The kernel is setup.sh's. Run again, it does nothing.
#
# The QEMU is that of trixie-backports: the one of trixie has no such device. It runs with its own libc, so the machine's release does not matter.
set -euo pipefail

lab=$(mkdir -p "${1:?where to}" && cd "$1" && pwd)
root=$lab/vfio-user
[ -e "$root/ready" ] && exit 0
rm -rf "$root"
mkdir -p "$root"/apt/{lists/partial,cache/archives/partial}

mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -1)
[ -n "$mirror" ] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list 2>/dev/null | head -1)
for suite in trixie trixie-backports; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >"$root/apt/sources.list"
# An empty status file: nothing counts as installed, so that every library comes along.
private=(-qq -o "Dir::Etc::sourcelist=$root/apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$root/apt/lists"
    -o "Dir::Cache=$root/apt/cache" -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o APT::Get::List-Cleanup=0
    -o Acquire::Languages=none -o APT::Sandbox::User=root)
apt-get "${private[@]}" update
apt-get "${private[@]}" -y --no-install-recommends --download-only -t trixie-backports install qemu-system-x86
for deb in "$root"/apt/cache/archives/*.deb; do
    case ${deb##*/} in lib* | zlib1g_* | qemu-system-* | seabios_*) dpkg -x "$deb" "$root" ;; esac
done
rm -rf "$root/apt" "$root"/usr/share/{doc,locale,man,bug,lintian}
grep -q vfio-user-pci "$root/usr/bin/qemu-system-x86_64" || { echo "the QEMU of $mirror has no vfio-user-pci" >&2; exit 1; }
touch "$root/ready"

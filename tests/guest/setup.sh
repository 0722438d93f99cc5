#!/bin/bash
# setup.sh DIR [SUITE]: a stock Debian kernel and a QEMU to run it in, unpacked into DIR from the machine's own Debian mirror.
#
# Nothing of it is installed; only the tools that unpack and pack (and the libraries that QEMU needs) are, when they are missing.
# SUITE is where the kernel comes from: bookworm-backports (6.12), bookworm (6.1), or sid (what Debian has newest). QEMU 10 is from bookworm-backports, because the 7.2 of bookworm crashes 6.12 kernels under emulation. Run again, it does nothing.
set -euo pipefail

lab=$(mkdir -p "${1:?where to}" && cd "$1" && pwd)
suite=${2:-bookworm-backports}
[ -e "$lab/ready" ] && exit 0

for pair in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio zstd:zstd lz4:lz4 xz:xz-utils depmod:kmod; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
if [ -n "${missing[*]-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "guest tests need root to install ${missing[*]}" >&2; exit 1; }
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# A private apt, so that backports stay out of the machine's own sources.
mkdir -p "$lab"/apt/{lists/partial,cache/archives/partial} "$lab"/{deb,kernel,qemu}
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -1)
[ -n "$mirror" ] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list 2>/dev/null | head -1)
for part in $(printf '%s\n' bookworm bookworm-backports "$suite" | sort -u); do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $part main"
done >"$lab/apt/sources.list"
private=(-qq -o "Dir::Etc::sourcelist=$lab/apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lab/apt/lists"
    -o "Dir::Cache=$lab/apt/cache" -o APT::Get::List-Cleanup=0 -o Acquire::Languages=none -o APT::Sandbox::User=root)
apt-get "${private[@]}" update

kernel=$(apt-cache "${private[@]}" -t "$suite" depends linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -1)
# Newer kernels are four packages.
parts=$(apt-cache "${private[@]}" -t "$suite" depends "$kernel" | sed -n 's/.*Depends: \(linux-\(base\|binary\|modules\)-[0-9][^ ]*\)$/\1/p')
(cd "$lab/deb" && apt-get "${private[@]}" download "$kernel" $parts {qemu-system-x86,qemu-system-common,qemu-system-data,seabios}/bookworm-backports)
for deb in "$lab"/deb/linux-*.deb; do dpkg -x "$deb" "$lab/kernel"; done
for deb in "$lab"/deb/{qemu,seabios}*.deb; do dpkg -x "$deb" "$lab/qemu"; done

# One layout for both: modules below lib/modules, with their dependencies.
[ -d "$lab/kernel/lib/modules" ] || ln -s usr/lib "$lab/kernel/lib"
version=$(basename "$(ls -d "$lab"/kernel/lib/modules/*)")
depmod -b "$lab/kernel" "$version"

# The kernel proper out of the bzImage, by its boot protocol header: QEMU starts an ELF at once, without firmware and decompression.
image=$lab/kernel/boot/vmlinuz-$version
[ -e "$image" ] || image=$lab/kernel/lib/modules/$version/vmlinuz
field() { od -An -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
start=$((($(field 497 1) + 1) * 512 + $(field 584 4)))
payload() { tail -c +$((start + 1)) "$image" | head -c "$(field 588 4)"; }
for unpack in "zstd -dqc" "lz4 -dqc" "xz -dqc --single-stream" "gzip -dqc"; do
    payload | $unpack >"$lab/vmlinux" 2>/dev/null || true # trailing bytes are no error here
    [ "$(head -c 4 "$lab/vmlinux" | od -An -c | tr -d ' ')" = '177ELF' ] && break
done
[ "$(head -c 4 "$lab/vmlinux" | od -An -c | tr -d ' ')" = '177ELF' ] || { echo "no ELF kernel in $image" >&2; exit 1; }
rm -rf "$lab/apt" "$lab/deb"
echo "$version" >"$lab/ready"

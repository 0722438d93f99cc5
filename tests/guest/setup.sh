#!/bin/bash
# setup.sh DIR [SUITE]: a stock Debian kernel, a QEMU to run it in, and the tools that unpack and pack, with all the libraries that they
# need, unpacked into DIR from the machine's own Debian mirror. Nothing is installed. Run again, it does nothing.
#
# SUITE is where the kernel comes from: bookworm-backports (6.12), bookworm (6.1), or sid (what Debian has newest). QEMU is that of
# trixie-backports, which has the device `vfio-user-pci`. Each program runs with its own libc, so the machine's release does not matter.
set -uo pipefail
cd "$(dirname "$0")/../.."
. tests/shared/need.sh

lab=$(mkdir -p "${1:?where to}" && cd "$1" && pwd)
suite=${2:-bookworm-backports}
# Another version of this script makes it anew.
recipe="$lab $suite $(cksum <tests/guest/setup.sh)"
exec 9>"$lab/lock"
flock 9
[ "$(cat "$lab/recipe" 2>/dev/null)" = "$recipe" ] && exit 0
command -v apt-get >/dev/null || skip "no apt to fetch a guest's kernel and QEMU"
mirror=$(mirror) || skip "no Debian mirror answers among those of /etc/apt, to fetch a guest's kernel and QEMU"
echo "unpacks a kernel of $suite and a QEMU of trixie-backports from $mirror into $lab"

set -e
rm -rf "${lab:?}"/{recipe,ready,apt,deb,kernel,qemu,bin,vmlinux,vfio-user}
mkdir -p "$lab"/{apt,deb,kernel,qemu,bin}
packages "$lab/apt/qemu" "$mirror" trixie trixie-backports
# Nothing counts as installed, so that every library comes along.
private "$lab/apt/qemu" apt-get -y --no-install-recommends --download-only -t trixie-backports install \
    qemu-system-x86 busybox-static cpio kmod zstd lz4 xz-utils
for deb in "$lab"/apt/qemu/cache/archives/*.deb; do
    case ${deb##*/} in lib* | zlib1g_* | qemu-system-* | seabios_* | busybox* | cpio_* | kmod_* | zstd_* | lz4_* | xz-utils_*) dpkg -x "$deb" "$lab/qemu" ;; esac
done
rm -rf "$lab"/qemu/usr/share/{doc,locale,man,bug,lintian}
for program in "$lab"/qemu/usr/{bin/{qemu-system-x86_64,busybox,cpio,zstd,lz4,xz},sbin/depmod}; do
    name=${program##*/}
    printf '#!/bin/sh\nexec "%s" --argv0 %s --library-path "%s" "%s" "$@"\n' "$lab/qemu/usr/lib64/ld-linux-x86-64.so.2" "$name" \
        "$lab/qemu/usr/lib/x86_64-linux-gnu" "$program" >"$lab/bin/$name"
    chmod +x "$lab/bin/$name"
done
# This one has no libraries, and goes into the guest.
ln -sf ../qemu/usr/bin/busybox "$lab/bin/busybox"
PATH=$lab/bin:$PATH
qemu-system-x86_64 -device vfio-user-pci,help >/dev/null || fail "the QEMU of $mirror has no vfio-user-pci"

packages "$lab/apt/kernel" "$mirror" "$suite"
depends() { private "$lab/apt/kernel" apt-cache depends "$1" | sed -n 's/.*Depends: \(linux-[^ ]*\)$/\1/p'; }
kernel=$(depends linux-image-cloud-amd64 | grep -m 1 '^linux-image-[0-9]')
# Newer kernels are four packages.
parts=$(depends "$kernel" | grep -E '^linux-(base|binary|modules)-[0-9]' || true)
# shellcheck disable=SC2086
(cd "$lab/deb" && private "$lab/apt/kernel" apt-get download "$kernel" $parts)
for deb in "$lab"/deb/linux-*.deb; do dpkg -x "$deb" "$lab/kernel"; done

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
[ "$(head -c 4 "$lab/vmlinux" | od -An -c | tr -d ' ')" = '177ELF' ] || fail "no ELF kernel in $image"
rm -rf "$lab/apt" "$lab/deb"
echo "$version" >"$lab/ready"
echo "$recipe" >"$lab/recipe"

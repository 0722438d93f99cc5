#!/bin/bash
# run.sh [options] -- COMMAND: boots a throw-away guest, runs COMMAND (a shell script's text) in it, prints what it prints, and exits with
# its status; 124 when the time is up, 125 when the guest did not get that far.
#
#   --lab DIR        what setup.sh filled (default $REAP_LAB)
#   --bin PATH       a program to have in the guest's PATH, with its libraries        --file SRC:DST   a file
#   --iommu          an IOMMU (Intel's), and the kernel's VFIO
#   --nvme N         NVMe controllers with 256 MiB each, serial LAB0, LAB1, …         --nvme-opt K=V,… properties of each
#   --module NAME    a kernel module, with those that it needs                        --append ARGS    for the kernel's command line
#   --vfio-user SOCK a PCI device that another process serves there; RAM is a memory file
#   --tcg multi|single (multi)   a thread of the host's for each CPU, or one: QEMU 10.0 ends by an assertion (iotlb_to_section) now and
#                    then where one CPU changes what an IOMMU maps while another reaches a device
#   --timeout SECONDS (REAP_GUEST_TIMEOUT, or 900)   on a busy machine a guest takes ten times as long as on a quiet one
#   --smp N|SPEC (2)  --mem MIB (1024)                --qemu ARG   more for QEMU, one argument each
set -euo pipefail

lab=${REAP_LAB:-} smp=2 mem=1024 limit=${REAP_GUEST_TIMEOUT:-900} nvme=0 nvme_opt= append= modules=(virtio_pci virtio_console) bins=() files=() extra=() iommu=() tcg=multi served=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --iommu)
            iommu=(-device intel-iommu,intremap=on,caching-mode=on) modules+=(vfio_iommu_type1 vfio-pci) append+=" intel_iommu=on iommu=nopt"
            shift
            continue
            ;;
        --lab) lab=$2 ;;
        --bin) bins+=("$2") ;;
        --file) files+=("$2") ;;
        --nvme) nvme=$2 ;;
        --nvme-opt) nvme_opt=,$2 ;;
        --module) modules+=("$2") ;;
        --append) append+=" $2" ;;
        --tcg) tcg=$2 ;;
        --vfio-user) served+=("$2") ;;
        --smp) smp=$2 ;;
        --mem) mem=$2 ;;
        --timeout) limit=$2 ;;
        --qemu) extra+=("$2") ;;
        *) echo "unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
[ $# -ge 2 ] || { echo "no command" >&2; exit 2; }
shift
[ -e "${lab:?--lab or REAP_LAB}/recipe" ] || { echo "$lab: run tests/guest/setup.sh first" >&2; exit 2; }
PATH=$lab/bin:$PATH

work=$(mktemp -d "${TMPDIR:-/dev/shm}/guest.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,usr/bin,usr/local/bin,etc,proc,sys,dev,tmp,run,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$(dirname "$0")/init.sh" "$root/init"
printf '%s\n' "$*" >"$root/command"

release=$(cat "$lab/ready")
: >"$root/modules/list"
add_module() { # dependencies first, each once
    local entry dependency
    entry=$(grep -E "/${1//[-_]/[-_]}\.ko[^/:]*:" "$lab/kernel/lib/modules/$release/modules.dep" | head -1) || return 0 # built in
    for dependency in $(echo "${entry#*:}" | tr ' ' '\n' | tac) "${entry%%:*}"; do
        local name=${dependency##*/} source=$lab/kernel/lib/modules/$release/$dependency
        name=${name%%.ko*}.ko
        [ -e "$root/modules/$name" ] && continue
        case $dependency in
            *.xz) xz -dc "$source" ;;
            *.zst) zstd -dqc "$source" ;;
            *) cat "$source" ;;
        esac >"$root/modules/$name"
        echo "$name" >>"$root/modules/list"
    done
}
for module in "${modules[@]}"; do add_module "$module"; done

for bin in ${bins[@]+"${bins[@]}"}; do
    bin=$(command -v "$bin") || { echo "no program $bin" >&2; exit 2; }
    cp -L "$bin" "$root/usr/local/bin/"
    for library in $(ldd "$bin" 2>/dev/null | grep -oE '/[^ ]+'); do
        [ -e "$root$library" ] || { mkdir -p "$root${library%/*}" && cp -L "$library" "$root$library"; }
    done
done
for file in ${files[@]+"${files[@]}"}; do
    mkdir -p "$root$(dirname "${file#*:}")" && cp -L "${file%%:*}" "$root${file#*:}"
done
(cd "$root" && find . -mindepth 1 | cpio --quiet -o -H newc) >"$work/initrd"

qemu=$lab/qemu/usr machine=q35,kernel-irqchip=split
if [ -n "${served[*]-}" ]; then
    machine+=,memory-backend=ram
    # Without `strict` the firmware drives the device before the kernel does.
    extra+=(-object "memory-backend-memfd,id=ram,size=${mem}M,share=on" -boot strict=on)
    for socket in "${served[@]}"; do
        extra+=(-device "{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"$socket\"}}")
    done
fi
arguments=(-L "$qemu/share/seabios" -L "$qemu/share/qemu" -nodefaults -no-user-config -display none -no-reboot
    -machine "$machine" -accel "tcg,thread=$tcg" -cpu max -smp "$smp" -m "$mem" ${iommu[@]+"${iommu[@]}"}
    -kernel "$lab/vmlinux" -initrd "$work/initrd" -serial "file:$work/console"
    -device virtio-serial-pci
    -chardev "file,id=out,path=$work/out" -device virtserialport,chardev=out,nr=1
    -chardev "file,id=status,path=$work/status" -device virtserialport,chardev=status,nr=2)
for ((i = 0; i < nvme; i++)); do
    truncate -s 256M "$work/nvme$i"
    arguments+=(-drive "if=none,id=disk$i,format=raw,file=$work/nvme$i,cache=unsafe" -device "nvme,serial=LAB$i,drive=disk$i$nvme_opt")
done
# What the guest prints arrives while it runs; a chardev on stdio would close with our input.
mkfifo "$work/out"
cat "$work/out" &
code=0
# Its own modules: those of a QEMU of this machine's are another build's.
QEMU_MODULE_DIR=$qemu/lib/x86_64-linux-gnu/qemu nice -n 10 timeout --foreground "$limit" qemu-system-x86_64 "${arguments[@]}" ${extra[@]+"${extra[@]}"} \
    -append "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check cryptomgr.notests $append" \
    </dev/null 2>"$work/qemu" &
machine=$!
# In the background, so that a script that ends this one also ends the machine.
trap 'kill "$machine"; exit 143' TERM
wait "$machine" || code=$?
: <>"$work/out" # if QEMU never opened it, let cat end
wait
if [ "$code" = 124 ]; then
    echo "guest: not done after $limit s" >&2
    tail -20 "$work/console" >&2
    exit 124
fi
if [ ! -s "$work/status" ]; then
    echo "guest: did not finish (QEMU's status $code)" >&2
    tail -5 "$work/qemu" >&2
    tail -20 "$work/console" >&2
    exit 125
fi
exit "$(cat "$work/status")"

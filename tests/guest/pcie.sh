#!/bin/sh
# In the guest: drives given to vfio-pci and back, driven by Reap, and read by the kernel's driver.
set -u
. /parts.sh
says() { # says WORDS COMMAND…: it has to fail, with these words
    words=$1
    shift
    if "$@" >/tmp/out 2>&1; then failed "no error: $*"; fi
    grep -qF -- "$words" /tmp/out || { failed "the error of $* does not say: $words"; cat /tmp/out; }
}
. /drives.sh
function_of() { basename "$(readlink -f "/sys/class/nvme/$(by_serial "$1")/device")"; }
job() { # job NAME LINES…: a job file of so much
    name=$1
    shift
    printf '[global]\nbs=4k\niodepth=16\nverify=crc32c\nrandseed=7\n[%s]\n' "$name" >/tmp/$name.fio
    printf '%s\n' "$@" >>/tmp/$name.fio
}
job both rw=randwrite size=512k numjobs=2 offset_increment=1m
job kernels rw=write size=2m offset=16m do_verify=0
job kernels_again rw=write size=2m offset=16m verify_only=1
job ours rw=randwrite size=2m offset=24m do_verify=0
job ours_again rw=randwrite size=2m offset=24m verify_only=1
job endless rw=randwrite size=16m offset=64m time_based runtime=100 do_verify=0
first=$(function_of LAB0) few=$(function_of FEW) slow=$(function_of SLOW) twin=$(function_of TWIN0) other=$(function_of TWIN1) mark=$(by_serial LAB1)n1

part "what stands in the way"
says "is bound to the driver \`nvme\`; \`reap bind $first\` gives it to vfio-pci" reap run /tmp/both.fio --allow-writes --device "pcie:$first"
says "there is no such PCI function here; NVMe controllers are at $first" reap run /tmp/both.fio --allow-writes --device pcie:00:1f.7
says "not an NVMe controller" reap run /tmp/both.fio --allow-writes --device pcie:00:00.0
says "this would overwrite the drive" reap run /tmp/both.fio --device "pcie:$first"
says "not an NVMe controller" reap bind 00:00.0
says "not to vfio-pci" reap unbind "$first"
disk=$(by_serial LAB0)n1
mkswap "/dev/$disk" >/dev/null && swapon "/dev/$disk"
says "/dev/$disk is in use: used as swap" reap bind "$first"
swapoff "/dev/$disk"
[ "$(basename "$(readlink "/sys/bus/pci/devices/$first/driver")")" = nvme ] || failed "a drive in use was taken"

part "what there is, as nvme-cli tells it"
plain() { sed 's/^ *//; s/[[:blank:]]*: /: /; s/[ ,]*$//; s/" *: */":/; s/ *"$/"/; s/"\([0-9][0-9]*\)"$/\1/' "$1" | grep -v '^[][{}]*$'; }
# Each field that Reap shows has nvme-cli's name and value.
fields_of_nvme_cli() { # fields_of_nvme_cli WHAT FILE-OF-REAP FILES-OF-NVME-CLI...
    what=$1 && plain "$2" | grep -E '^("[a-z0-9]*":[^[{]|[a-z0-9]+ *[0-9]* *: )' | grep -Ev '^"(device|nsid|lbaf|in_use)"' >/tmp/ours
    shift 2
    for file; do plain "$file"; done >/tmp/theirs
    [ "$(wc -l </tmp/ours)" -gt 20 ] || { failed "$what: Reap shows little"; cat /tmp/ours; }
    grep -vxF -f /tmp/theirs /tmp/ours >/tmp/lacking && { failed "$what: nvme-cli has no such lines"; cat /tmp/lacking; }
    echo "$what: $(wc -l </tmp/ours) lines as nvme-cli's"
}
control=/dev/$(by_serial LAB0) generic=/dev/ng$(by_serial LAB0 | tr -d nvme)n1
nvme id-ctrl "$control" -o json >/tmp/theirs.ctrl 2>&1
nvme id-ns "${control}n1" -o json >/tmp/theirs.ns 2>&1
nvme id-ctrl "$control" >/tmp/theirs.ctrl.text 2>&1
nvme id-ns "${control}n1" >/tmp/theirs.ns.text 2>&1
done_by "reap list --json" reap list --json
grep -q "\"GenericPath\": \"$generic\"" /tmp/out || { failed "reap list shows no namespace"; cat /tmp/out; }
done_by "reap id $generic" reap id "$generic" -o json
fields_of_nvme_cli "reap id $generic, JSON" /tmp/out /tmp/theirs.ctrl /tmp/theirs.ns
done_by "reap id $generic" reap id "kernel:$generic"
fields_of_nvme_cli "reap id $generic" /tmp/out /tmp/theirs.ctrl.text /tmp/theirs.ns.text
done_by "reap doctor" reap doctor --for kernel,figures
grep -E '^  (limited|ok) +poll queues' /tmp/out || failed "reap doctor says nothing of poll queues"

part "to vfio-pci, and what each driver wrote is read by the other"
done_by "writing by the kernel's driver" reap run /tmp/kernels.fio --allow-writes --device "kernel:/dev/$disk"
done_by "reap bind" reap bind "$first"
done_by "reading what the kernel's driver wrote" reap run /tmp/kernels_again.fio --device "pcie:$first" --completion interrupt
done_by "writing" reap run /tmp/ours.fio --allow-writes --device "pcie:$first"
done_by "reap unbind" reap unbind "$first"
done_by "reading by the kernel's driver what Reap wrote" reap run /tmp/ours_again.fio --device "kernel:/dev/$(by_serial LAB0)n1"
done_by "reap bind again" reap bind "$first"

done_by "reap id of the drive" reap id "pcie:$first" --json
if [ -e /tmp/theirs.ctrl ]; then
    fields_of_nvme_cli "reap id over pcie:" /tmp/out /tmp/theirs.ctrl /tmp/theirs.ns
fi
done_by "reap list" reap list --json
grep -q '"Driver": "vfio-pci"' /tmp/out || { failed "reap list shows who has the drive"; cat /tmp/out; }
done_by "reap doctor, for pcie:" reap doctor --for pcie

part "every mode, two queues, each block verified"
for mode in interrupt interrupt+submit-check threaded irq-poll posted hybrid-mean hybrid-min suspend coalesce dim vic poll adaptive; do
    done_by "$mode" reap run /tmp/both.fio --allow-writes --device "pcie:$first" --completion $mode
done

part "the conformance suite"
REAP_TEST_DEVICE=pcie:$first links --test-threads=1 --skip faults:: --skip witnesses:: --skip kernel:: >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
grep -E '^test result|SKIPPED' /tmp/out

part "a user without privileges"
done_by "reap bind --user" reap bind "$first" --user 1000
# The shell's own setpriv has fewer options.
as_user() { /usr/local/bin/setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all sh -c "ulimit -l $1; shift; exec \"\$@\"" sh "$@"; }
done_by "4 MiB of locked memory" as_user 4096 reap run /tmp/both.fio --allow-writes --device "pcie:$first"
says "RLIMIT_MEMLOCK is 4096000 bytes; raise it to 4194304 or more" as_user 4000 reap run /tmp/both.fio --allow-writes --device "pcie:$first"
done_by "reap bind --user 0" reap bind "$first" --user 0
says "this user may not open /dev/vfio/" as_user 8192 reap run /tmp/both.fio --allow-writes --device "pcie:$first"

part "groups, and drives that lack something"
done_by "one function of two" reap bind "$twin"
grep -q "$other" /tmp/out || { failed "reap bind names the group"; cat /tmp/out; }
says "the kernel drives other functions of it: $other (nvme)" reap run /tmp/both.fio --allow-writes --device "pcie:$twin"
done_by "back" reap unbind "$twin"
done_by "a drive of few queues" reap bind "$few"
done_by "a slow drive" reap bind "$slow"
export REAP_TEST_DRIVE=$first REAP_TEST_FEW=$few REAP_TEST_SLOW=$slow REAP_TEST_MARK=$mark
given() { # given TEST: one of those that need a drive
    links --test-threads=1 --nocapture --ignored --exact "faults::pcie::$1" >/tmp/out 2>&1 || { failures=$((failures + 1)); cat /tmp/out; }
    grep -oE '(test result|counted|kept|named): .*' /tmp/out
}
given scarce_vectors_are_shared
given posted_group_has_one_eventfd
given resets_under_load_lose_nothing
given slow_drive_is_aborted_or_reset
given qemu_counts_the_same_doorbells
given long_data_are_named_by_sgls

part "ended in the middle"
for signal in KILL INT; do
    reap run /tmp/endless.fio --allow-writes --device "pcie:$first" >/tmp/endless 2>&1 &
    running=$!
    sleep 4
    says "is in use through VFIO: process $running (reap)" reap unbind "$first"
    kill -$signal $running
    wait $running
    done_by "the drive after SIG$signal" reap run /tmp/ours_again.fio --device "pcie:$first"
done
reap run /tmp/endless.fio --allow-writes --device "pcie:$first" >/tmp/endless 2>&1 &
running=$!
sleep 4
kill -KILL $running
wait $running
done_by "back after SIGKILL" reap unbind "$first"
done_by "the kernel's driver after SIGKILL" reap run /tmp/ours_again.fio --device "kernel:/dev/$(by_serial LAB0)n1"
done_by "and Reap again" reap bind "$first"
# A fault of a device's is a line of the IOMMU's: what it reached that it was not given.
dmesg | grep -iE 'DMAR:.*(fault|DRHD: handling)' && failed "the IOMMU has kept the drive from something"

part "pulled out"
given removed_drive_fails_requests
part "$failures failures"
[ $failures = 0 ]

# The guest's NVMe drives, for its scripts.
# The kernel probes controllers at the same time and numbers them as they come.
by_serial() { # by_serial SERIAL: its controller, once its namespace is there
    for tenth in $(seq 300); do
        found=$(grep -lx "$1 *" /sys/class/nvme/nvme*/serial 2>/dev/null | grep -oE 'nvme[0-9]+' | tail -1)
        [ -n "$found" ] && [ -b "/dev/${found}n1" ] && break
        sleep 0.1
    done
    echo "$found"
}

# What the scripts in a guest say of their parts.
failures=0
failed() { echo "FAILED: $*"; failures=$((failures + 1)); }
part() { echo "== $* ($(cut -d. -f1 /proc/uptime) s)"; }
done_by() { # done_by WHAT COMMAND…: it has to succeed
    what=$1
    shift
    "$@" >/tmp/out 2>&1 || { failed "$what"; cat /tmp/out; }
}

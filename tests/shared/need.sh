# Sourced by the parts of ./test.sh, in the root of the checkout: what a part needs. A part exits 0 (passed), 77 (SKIPPED) or anything
# else (FAILED). Programs are built with --workspace, as the first part of ./test.sh has built them: -p selects other features, and builds
# all of them again. A skip is for a machine without root, apt, a Debian mirror or x86-64, and says which of them it is.
PATH=$PATH:/usr/sbin:/sbin

skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }

# uris ETC: what the apt sources in ETC fetch binary packages from, those that end with /debian first.
uris() {
    # The last line of a file may lack its end, and an empty line ends the last stanza.
    each() { for file; do [ -e "$file" ] && cat "$file" && printf '\n\n'; done; }
    {
        each "$1"/sources.list "$1"/sources.list.d/*.list | awk '
            { sub(/#.*/, "") }
            $1 == "deb" { sub(/^[ \t]*deb[ \t]+(\[[^]]*\][ \t]*)?/, ""); print $1 }'
        each "$1"/sources.list.d/*.sources | awk '
            /^#/ { next }
            /^[^ \t:]+:/ { field = tolower($0); sub(/:.*/, "", field); sub(/^[^:]*:/, "") }
            NF { value[field] = value[field] " " $0; next }
            { stanza() }
            END { stanza() }
            function stanza(  n, all, i) {
                if ((value["types"] " ") ~ /[ \t]deb[ \t]/ && tolower(value["enabled"]) !~ /no|false|off/) {
                    n = split(value["uris"], all)
                    for (i = 1; i <= n; i++) print all[i]
                }
                split("", value)
            }'
    } | awk '/^cdrom:/ || seen[$0]++ { next } /\/debian\/?$/ { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }'
}

# private DIR TOOL ARGUMENTS…: an apt that knows DIR/sources.list alone, and nothing as installed; it needs no root.
private() {
    local dir=$1 tool=$2
    shift 2
    mkdir -p "$dir"/{lists/partial,cache/archives/partial}
    "$tool" -qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" \
        -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o Acquire::Languages=none -o APT::Sandbox::User=root \
        -o APT::Update::Error-Mode=any "$@"
}

# packages DIR MIRROR SUITE…: has a private apt read what these suites have.
packages() {
    local dir=$1 mirror=$2 suite
    shift 2
    mkdir -p "$dir"
    for suite; do echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"; done >"$dir/sources.list"
    private "$dir" apt-get update
}

# mirror: the first of the machine's own mirrors that has Debian 13.
mirror() {
    local dir uri
    dir=$(mktemp -d)
    for uri in $(uris /etc/apt); do
        packages "$dir" "$uri" trixie 2>/dev/null && break
        uri=
    done
    rm -rf "$dir"
    [ -n "${uri:-}" ] && echo "$uri"
}

# need PROGRAM|FILE=PACKAGE…: installs the packages of what is not there.
need() {
    local pair missing=() all
    for pair; do command -v "${pair%%=*}" >/dev/null || [ -e "${pair%%=*}" ] || missing+=("${pair#*=}"); done
    [ ${#missing[@]} = 0 ] && return
    command -v apt-get >/dev/null || skip "no apt to install ${missing[*]}"
    [ "$(id -u)" = 0 ] || skip "no root to install ${missing[*]}"
    # Sources of other programs may not answer; what counts is whether the packages are there.
    apt-get -qq update || true
    all=$(apt-get -qq -s install --no-install-recommends "${missing[@]}" | awk '$1 == "Inst" { printf " %s", $2 }') || true
    echo "installs Debian packages:${all:- ${missing[*]}}"
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >/dev/null && return
    mirror >/dev/null || skip "no Debian mirror answers, to install ${missing[*]}"
    fail "cannot install ${missing[*]}"
}

# lab [SUITE]: the kernel and the QEMU of the guests, in $REAP_LAB.
lab() {
    export REAP_LAB=${REAP_LAB:-$PWD/target/lab}
    [ "$(uname -m)" = x86_64 ] || skip "guests run an x86-64 kernel, and this machine is $(uname -m)"
    timeout 600 tests/guest/setup.sh "$REAP_LAB" "$@"
    case $? in 0) ;; 77) exit 77 ;; *) fail "tests/guest/setup.sh" ;; esac
}

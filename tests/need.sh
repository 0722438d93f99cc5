#!/bin/bash
# tests/shared/need.sh on sample files: mirrors out of classic lists and deb822 stanzas, what is installed, what is skipped and what fails.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/shared/need.sh

etc=$(mktemp -d)
trap 'rm -rf "$etc"' EXIT
mkdir "$etc/sources.list.d" "$etc/bin"
is() { # is WHAT GOT WANTED
    [ "$2" = "$3" ] || fail "$1: got '$2', expected '$3'"
    echo "ok: $1"
}

is "no sources" "$(uris "$etc")" ""
cat >"$etc/sources.list" <<'END'
# deb http://a.test/debian bookworm main
deb cdrom:[Debian GNU/Linux 12.5.0 _Bookworm_]/ bookworm main
deb-src http://source.test/debian bookworm main
deb [arch=amd64] https://tool.test/apt stable main
deb [ signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64 ] http://b.test/debian bookworm main contrib # ours
deb	http://b.test/debian bookworm-updates main
END
truncate -s -1 "$etc/sources.list"
is "a classic list" "$(uris "$etc" | paste -sd ' ')" "http://b.test/debian https://tool.test/apt"
printf 'deb http://c.test/debian/ bookworm main' >"$etc/sources.list.d/more.list"
is "a list in the folder" "$(uris "$etc" | paste -sd ' ')" "http://b.test/debian http://c.test/debian/ https://tool.test/apt"
rm "$etc/sources.list" "$etc/sources.list.d/more.list"
printf 'Types: deb-src\nURIs: http://source.test/node' >"$etc/sources.list.d/0.sources"
printf 'Types: deb\nURIs: https://tool.test/node\nSuites: nodistro\n' >"$etc/sources.list.d/a.sources"
cat >"$etc/sources.list.d/debian.sources" <<'END'
Types: deb deb-src
# URIs: http://old.test/debian
URIs: mirror+file:/etc/apt/mirrors/debian.list http://d.test/debian
 http://e.test/debian
Suites: bookworm bookworm-updates
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://off.test/debian

types: deb-src
uris: http://source.test/debian

Types: deb
URIs: http://d.test/debian-security
END
is "stanzas" "$(uris "$etc" | paste -sd ' ')" \
    "http://d.test/debian http://e.test/debian https://tool.test/node mirror+file:/etc/apt/mirrors/debian.list http://d.test/debian-security"

# What a part says, with an apt that has one package, `there`, and a mirror that answers or does not.
cat >"$etc/bin/apt-get" <<'END'
#!/bin/bash
case " $* " in
    *" -s install "*" there "*) echo "Inst libthere (1.0)"; echo "Inst there (1.0)"; echo "Conf there (1.0)" ;;
    *" install "*" there "*) ;;
    *" update "*) ;;
    *) exit 100 ;;
esac
END
chmod +x "$etc/bin/apt-get"
ends() { # ends WHAT STATUS WORDS COMMAND: in a shell of its own
    local said
    said=$(PATH="$etc/bin:$PATH"; id() { echo "${user:-0}"; }; eval "$4"; exit 0)
    is "$1" "$? $said" "$2 $3"
}
ends "what is there is not installed" 0 "" "need sh=dash /etc=base-files"
ends "packages are named before they are installed" 0 "installs Debian packages: libthere there" "need no-such-program=there"
user=1000 ends "no root" 77 "SKIPPED: no root to install there" "need no-such-program=there"
ends "no mirror" 77 $'installs Debian packages: gone\nSKIPPED: no Debian mirror answers, to install gone' "mirror() { false; }; need no-such-program=gone"
ends "a package that cannot be installed" 1 $'installs Debian packages: gone\nFAILED: cannot install gone' "mirror() { true; }; need no-such-program=gone"
ends "another machine" 77 "SKIPPED: guests run an x86-64 kernel, and this machine is aarch64" "uname() { echo aarch64; }; lab"
ends "a set-up that fails" 1 "FAILED: tests/guest/setup.sh" "uname() { echo x86_64; }; timeout() { return 1; }; lab"

# test.sh: each part runs, also after one that fails; and it ends with 1.
mkdir "$etc/tests"
cp test.sh "$etc/test.sh"
printf '#!/bin/sh\nexit 0\n' >"$etc/bin/cargo"
chmod +x "$etc/bin/cargo"
echo 'echo "SKIPPED: no root"; exit 77' >"$etc/tests/b.sh"
echo 'echo "Left out: one"' >"$etc/tests/c.sh"
runs() { PATH="$etc/bin:$PATH" bash "$etc/test.sh" | sed -n '/Summary/,$ { s/^ *[0-9]* s  //; s/^ *//; p }' | tail -n +5 | paste -sd '|'; return "${PIPESTATUS[0]}"; }
is "a summary" "$(runs; echo $?)" $'tests/b.sh: skipped: no root|tests/c.sh: passed|Left out: one|no socket stays: passed|parts: 5 passed, 0 failed, 1 skipped\n0'
echo 'exit 3' >"$etc/tests/a.sh"
is "a part that fails" "$(runs; echo $?)" $'tests/a.sh: FAILED|tests/b.sh: skipped: no root|tests/c.sh: passed|Left out: one|no socket stays: passed|parts: 5 passed, 1 failed, 1 skipped\n1'
cat >"$etc/tests/a.sh" <<'END'
perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "$ENV{TMPDIR}/left.ctl", Listen => 1)'
END
is "a socket that stays" "$(runs; echo $?)" $'tests/a.sh: passed|tests/b.sh: skipped: no root|tests/c.sh: passed|Left out: one|no socket stays: FAILED|parts: 5 passed, 1 failed, 1 skipped\n1'

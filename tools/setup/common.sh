# Shared by the set-up scripts (sourced, not run): where things are kept, and how to speak.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${WARMROUTE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/warmroute}
mkdir -p "$cache"

# Messages go to stderr: stdout is for the answer.
say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "need root (or sudo) for: $*"
    fi
}

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# The package exists in apt's lists.
is_known() { [ -n "$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([^(].*\)/\1/p')" ]; }

# apt_ensure PACKAGE...: installs what is missing; says nothing when nothing is.
apt_ensure() {
    command -v apt-get >/dev/null || die "no apt-get here; install by hand what these Debian packages hold: $*"
    local missing=() package
    for package; do is_installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} = 0 ] && return
    for package in "${missing[@]}"; do
        is_known "$package" || { as_root apt-get update -qq >&2; break; }
    done
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2
}

# limited SECONDS COMMAND...: with a time limit where the system has timeout(1).
limited() {
    local seconds=$1
    shift
    if command -v timeout >/dev/null; then timeout "$seconds" "$@"; else "$@"; fi
}

# lock NAME: one at a time from here to the end of the script, where the system has flock(1).
lock() {
    command -v flock >/dev/null || return 0
    exec 9>"$cache/$1.lock"
    flock 9
}

#!/usr/bin/env bash
# Prints the launchers of the routers that warmroute is compared with, a line each: NAME PATH. They are installed from PyPI,
# each into a private Python environment of its own, at the version that the comparison was written for.
#
# peers.sh [NAME...]: sglang-router, vllm-router; both unless named.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# package NAME: what pip installs, at the version whose flags tools/harness/src/peers.rs writes.
package() {
    case $1 in
        sglang-router) echo sglang-router==0.3.2 ;;
        vllm-router) echo vllm-router==0.1.17 ;;
        *) die "no peer is called $1; there are sglang-router and vllm-router" ;;
    esac
}

# launcher NAME VENV: what is run in it.
launcher() {
    case $1 in
        sglang-router) echo "$2/bin/sglang-router" ;;
        vllm-router) echo "$2/bin/vllm-router" ;;
    esac
}

install() {
    local name=$1 package=$2 venv=$3
    command -v python3 >/dev/null || apt_ensure python3 python3-venv
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_ensure python3-venv
    say "installing $package from PyPI into $venv"
    # In place, and cleared first: an environment that is renamed after it was made has the wrong paths in it.
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" >&2
    [ -x "$(launcher "$name" "$venv")" ] || die "$package holds no $(basename "$(launcher "$name" "$venv")")"
    # Written last: half an installation has none and is made anew.
    echo "$package" >"$venv/installed"
}

lock peers
[ $# -gt 0 ] || set -- sglang-router vllm-router
for name; do
    package=$(package "$name")
    venv=$cache/$name
    [ "$(cat "$venv/installed" 2>/dev/null)" = "$package" ] || install "$name" "$package" "$venv"
    echo "$name $(launcher "$name" "$venv")"
done

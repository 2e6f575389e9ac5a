#!/usr/bin/env bash
# Prints the path of wasm-bindgen-test-runner, of the very version that Cargo.lock names (the two must match).
# Builds it from crates.io at the first need, some minutes, and keeps it in the cache.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p;}' "$root/Cargo.lock")
[ -n "$version" ] || die "Cargo.lock names no wasm-bindgen"
home=$cache/wasm-bindgen-$version
runner=$home/bin/wasm-bindgen-test-runner
lock wasm-bindgen
if [ ! -x "$runner" ]; then
    say "building wasm-bindgen-cli $version into $home, once; takes some minutes"
    # Niced, as it is the one long step; its build directory is of no use afterwards.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    install() {
        CARGO_TARGET_DIR=$work nice cargo install --quiet --root "$home" --version "$version" \
            --bin wasm-bindgen-test-runner "$@" wasm-bindgen-cli >&2
    }
    # Its own lock file can name what a registry mirror does not have (yet).
    install --locked || { say "trying again without its lock file"; install; }
fi
say "wasm-bindgen-test-runner $version"
echo "$runner"

#!/usr/bin/env bash
# Runs the plugin's unit tests and tests/parity.rs as WebAssembly in Node, with wasm-bindgen-test.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$root/tools/setup/need.sh" node nodejs
runner=$("$root/tools/setup/wasm-bindgen.sh")
export TARGET=wasm32-unknown-unknown CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER=$runner
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# One binary per run, as the runner says nothing of which it is.
for which in --lib "--test parity"; do
    say "cargo test $which"
    # shellcheck disable=SC2086 # two words, where there are two
    "$root/tools/setup/wasm-cargo.sh" test --package warmroute $which | tee "$output"
    # The runner is content with a binary in which it finds nothing to run; green must mean that something ran.
    grep -Eq '^test result: ok\. [1-9]' "$output" || die "cargo test $which: no test ran"
done

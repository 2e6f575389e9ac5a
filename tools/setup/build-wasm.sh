#!/usr/bin/env bash
# Builds the plugin for release and leaves it at target/warmroute.wasm.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

TARGET=wasm32-wasip1 "$root/tools/setup/wasm-cargo.sh" build --release --package warmroute --lib
built=${CARGO_TARGET_DIR:-$root/target}/wasm/wasm32-wasip1/release/warmroute.wasm
mkdir -p "$root/target"
# Renamed into place: an Envoy that is loading the old file must never see half of the new one.
cp "$built" "$root/target/warmroute.wasm.new"
mv "$root/target/warmroute.wasm.new" "$root/target/warmroute.wasm"
say "target/warmroute.wasm, $(($(wc -c <"$built") / 1024)) KB"

#!/usr/bin/env bash
# Builds a wasm filter for release and leaves it in target/: the plugin at target/warmroute.wasm, unless told otherwise.
#
#   tools/setup/build-wasm.sh
#   tools/setup/build-wasm.sh --package warmroute-noop-filter --output noop.wasm
#   tools/setup/build-wasm.sh --features stage-times --output warmroute-stages.wasm
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

package=warmroute features="" output=warmroute.wasm
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1: expected --package NAME, --features LIST or --output FILE.wasm"
    case $1 in
    --package) package=$2 ;;
    --features) features=$2 ;;
    --output) output=$2 ;;
    *) die "$1: expected --package NAME, --features LIST or --output FILE.wasm" ;;
    esac
    shift 2
done
case $output in */* | "") die "--output $output: expected a file's name, without a folder" ;; esac
if [ "$output" = warmroute.wasm ] && [ "$package/$features" != warmroute/ ]; then
    die "target/warmroute.wasm is the plugin as it is shipped; name another --output"
fi

# One at a time: builds of one package with different features leave their result in the same place.
lock build-wasm
TARGET=wasm32-wasip1 "$root/tools/setup/wasm-cargo.sh" build --release --package "$package" --lib --features "$features"
built=${CARGO_TARGET_DIR:-$root/target}/wasm/wasm32-wasip1/release/${package//-/_}.wasm
mkdir -p "$root/target"
# Renamed into place: an Envoy that is loading the old file must never see half of the new one.
cp "$built" "$root/target/$output.new"
mv "$root/target/$output.new" "$root/target/$output"
say "target/$output, $((($(wc -c <"$built") + 1023) / 1024)) KB"

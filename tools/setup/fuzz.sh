#!/usr/bin/env bash
# Runs cargo-fuzz on the targets in fuzz/, which it sets up for that.
#
#   tools/setup/fuzz.sh run [TARGET] [MINUTES]   all targets unless named, a minute each unless told
#   tools/setup/fuzz.sh keep [TARGET]            the smallest set that covers what was found becomes fuzz/corpus/TARGET.txt
#
# What is found stays in the cache, so that the next run goes on from there. An input that breaks a law is written to
# fuzz/crashes, where the normal tests replay it for ever, and the run ends with an error.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

fuzz=$root/fuzz
found=$cache/fuzz
home=$cache/cargo-fuzz
targets=$(cd "$fuzz/fuzz_targets" && printf '%s\n' *.rs | sed 's/\.rs$//')

install_cargo_fuzz() {
    lock cargo-fuzz
    [ -x "$home/bin/cargo-fuzz" ] && return
    say "building cargo-fuzz into $home, once"
    local work
    work=$(mktemp -d)
    CARGO_TARGET_DIR=$work nice cargo install --quiet --locked --root "$home" cargo-fuzz >&2
    rm -rf "$work"
}

# libFuzzer's instrumentation is unstable: a nightly compiler, or a stable one that is told to behave as such.
choose_compiler() {
    if rustup run nightly rustc -V >/dev/null 2>&1; then
        compiler=RUSTUP_TOOLCHAIN=nightly
    else
        compiler=RUSTC_BOOTSTRAP=1
    fi
    say "with $(env "$compiler" rustc -V)"
}

# Below the usual target directory, but of its own: everything is compiled with other flags.
cargo_fuzz() {
    local command=$1
    shift
    (cd "$fuzz" && env "$compiler" "$home/bin/cargo-fuzz" "$command" --target-dir "${CARGO_TARGET_DIR:-$root/target}/fuzz" "$@")
}

dictionary() {
    case $1 in
    config | request | usage) echo "$fuzz/dictionaries/json.dict" ;;
    metrics) echo "$fuzz/dictionaries/metrics.dict" ;;
    esac
}

# As long as what is long in its own way: a page of metrics, a content whose role is a guess. The shorter, the more runs.
bytes_max() {
    case $1 in
    metrics) echo 65536 ;;
    request) echo 32768 ;;
    *) echo 4096 ;;
    esac
}

# pack and unpack: see tools/fuzz-targets/src/main.rs.
inputs() { cargo run --quiet --manifest-path "$root/Cargo.toml" --package warmroute-fuzz-targets -- "$@" >&2; }

run() {
    local target=$1 seconds=$2 words
    mkdir -p "$found/$target" "$fuzz/crashes/$target"
    inputs unpack "$target" "$found/$target-known"
    words=$(dictionary "$target")
    say "$target for $seconds s"
    # The first folder takes what is new.
    cargo_fuzz run "$target" "$found/$target" "$found/$target-known" -- \
        -max_total_time="$seconds" -max_len="$(bytes_max "$target")" -rss_limit_mb=3072 -timeout=20 -report_slow_units=20 \
        -print_final_stats=1 -artifact_prefix="$fuzz/crashes/$target/" ${words:+-dict="$words"}
    # Nothing broke. Git keeps no empty folders either.
    rmdir --ignore-fail-on-non-empty -p "$fuzz/crashes/$target"
}

# By edges alone: with how often each is taken, a set is ten times as large and covers nothing more.
keep() {
    local target=$1 kept
    kept=$(mktemp -d)
    mkdir -p "$found/$target"
    rm -rf "$found/$target-known"
    inputs unpack "$target" "$found/$target-known"
    cargo_fuzz run "$target" "$kept" "$found/$target-known" "$found/$target" -- \
        -merge=1 -use_counters=0 -max_len="$KEPT_BYTES_MAX" >&2
    inputs pack "$target" "$kept"
    rm -rf "$kept"
}

# Longer inputs are found again from the samples; the repository keeps the short ones.
KEPT_BYTES_MAX=4096

command=${1:-run} target=${2:-} minutes=${3:-}
case $command in run | keep) ;; *) die "$command: expected run or keep" ;; esac
[ -z "$target" ] || grep -qx "$target" <<<"$targets" || die "$target: there are $(echo $targets)"
install_cargo_fuzz
choose_compiler
for one in ${target:-$targets}; do
    if [ "$command" = run ]; then run "$one" $((${minutes:-1} * 60)); else keep "$one"; fi
done

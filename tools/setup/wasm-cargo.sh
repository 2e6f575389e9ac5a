#!/usr/bin/env bash
# Runs cargo for a wasm target: TARGET=wasm32-wasip1 (the default) or wasm32-unknown-unknown, then cargo's own arguments.
#
#   tools/setup/wasm-cargo.sh build --release
#   TARGET=wasm32-unknown-unknown tools/setup/wasm-cargo.sh test --lib
#
# Uses the toolchain's own target where it is installed or can be had from rustup. Where only package registries are
# reachable, Debian's packages (compiler, library sources, linker, C library) stand in and std is built from source.
# WARMROUTE_WASM_TOOLCHAIN=rustup|debian forces one of the two.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=${TARGET:-wasm32-wasip1}
case $target in wasm32-wasip1 | wasm32-unknown-unknown) ;; *) die "TARGET=$target: expected wasm32-wasip1 or wasm32-unknown-unknown" ;; esac
[ $# -gt 0 ] || die "usage: [TARGET=...] wasm-cargo.sh CARGO-COMMAND [ARGUMENT...]"
command -v cargo >/dev/null || die "no cargo on PATH; see https://rustup.rs"
# Of its own, so that native builds and wasm builds do not evict each other.
target_dir=${CARGO_TARGET_DIR:-$root/target}/wasm

# Searching strings and hashing take 16 bytes at a time. Envoy's V8 has it on every x86-64 with SSE4.1 and every arm64.
simd=-Ctarget-feature=+simd128

has_target() { compgen -G "$(rustc --print target-libdir --target "$target" 2>/dev/null)/libstd-*.rlib" >/dev/null; }

# Asks rustup, and remembers a refusal for a day: offline, every later run would wait for the time limit again.
add_target() {
    command -v rustup >/dev/null || return 1
    local refused="$cache/rustup-refused-$target-$(rustc -V | cut -d' ' -f2)"
    [ -n "$(find "$refused" -mmin -1440 2>/dev/null)" ] && return 1
    if limited 20 rustup target add "$target" >"$refused.log" 2>&1 && has_target; then
        rm -f "$refused" "$refused.log"
        say "rustup added $target"
    else
        touch "$refused"
        say "rustup cannot add $target here (it said: $(tail -n 1 "$refused.log")); not asking again for a day"
        return 1
    fi
}

# compiler_flags FLAGS: for the target alone, beside what the caller has set for all.
compiler_flags() {
    local upper
    upper=$(tr 'a-z-' 'A-Z_' <<<"$target")
    export "CARGO_TARGET_${upper}_RUSTFLAGS=$*"
    [ -z "${RUSTFLAGS:-}" ] || export RUSTFLAGS="$RUSTFLAGS $*"
}

with_own_target() {
    say "$target of $(rustc -V | cut -d' ' -f1,2)"
    compiler_flags "$simd"
    local command=$1
    shift
    exec cargo "$command" --target "$target" --target-dir "$target_dir" "$@"
}

newest_lld() {
    is_known lld-19 && { echo 19; return; }
    apt-cache search --names-only '^lld-[0-9]+$' | sed -n 's/^lld-\([0-9]*\) .*/\1/p' | sort -n | tail -n 1
}

with_debian() {
    local lld linker flags upper command
    command -v apt-get >/dev/null || die "rustup cannot add $target and this is no Debian; install a Rust toolchain that has $target"
    is_known rustc-web || as_root apt-get update -qq >&2
    lld=$(newest_lld)
    [ -n "$lld" ] || die "apt knows no lld-N package"
    apt_ensure rustc-web rust-web-src rust-web-clippy "lld-$lld" wasi-libc
    linker=wasm-ld-$lld
    say "$target of Debian's $(/usr/bin/rustc -V | cut -d' ' -f1,2), std built from source, $linker"

    # Debian's rustc carries no linker and no C library of its own for wasm, hence both are named here.
    flags="$simd -Clinker-flavor=wasm-ld"
    [ "$target" = wasm32-wasip1 ] && flags+=" -Clink-self-contained=no -L/usr/lib/wasm32-wasi"
    upper=$(tr 'a-z-' 'A-Z_' <<<"$target")
    export "CARGO_TARGET_${upper}_LINKER=$linker"
    compiler_flags "$flags"
    # `-Z build-std` is unstable; the bootstrap switch lets the stable compiler take it.
    export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1

    command=$1
    shift
    set -- --target "$target" --target-dir "$target_dir" -Z build-std=std,panic_abort "$@"
    # clippy must be the compiler's own; cargo would find the one of the toolchain on PATH.
    if [ "$command" = clippy ]; then exec /usr/bin/cargo-clippy clippy "$@"; else exec cargo "$command" "$@"; fi
}

cd "$root"
case ${WARMROUTE_WASM_TOOLCHAIN:-} in
"") if has_target || add_target; then with_own_target "$@"; else with_debian "$@"; fi ;;
rustup) has_target || add_target || die "no $target in the toolchain on PATH"; with_own_target "$@" ;;
debian) with_debian "$@" ;;
*) die "WARMROUTE_WASM_TOOLCHAIN=$WARMROUTE_WASM_TOOLCHAIN: expected rustup or debian" ;;
esac

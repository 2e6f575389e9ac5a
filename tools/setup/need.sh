#!/usr/bin/env bash
# need.sh PROGRAM [PACKAGE]: installs Debian's package (of the same name unless told) where the program is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command -v "$1" >/dev/null || apt_ensure "${2:-$1}"

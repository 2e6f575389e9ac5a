#!/usr/bin/env bash
# Runs Node with the given arguments; installs Debian's package where there is none.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command -v node >/dev/null || apt_ensure nodejs
exec node "$@"

#!/usr/bin/env bash
# Holds four conversations of two turns each through the gateway (default 127.0.0.1:10000) and prints who served them.
set -euo pipefail

gateway=${1:-127.0.0.1:10000}

message() { printf '{"role":"%s","content":"%s"}' "$1" "$2"; }

ask() {
    curl --silent --show-error --include "http://$gateway/v1/chat/completions" \
        --data "{\"model\":\"sim\",\"messages\":[$1]}" |
        grep -oE 'x-warmroute-(worker|reason): [^ ]*|"(prompt|cached)_tokens":[0-9]+' | tr -d '\r' | paste -sd' '
}

for role in teacher lawyer cook pilot; do
    # A system prompt of about 270 tokens, as applications have them; each conversation has its own.
    system=$(message system "$(printf "You are a patient $role. %.0s" {1..40})")
    question=$(message user 'What is a KV cache?')
    answer=$(message assistant 'A memory of earlier tokens.')
    echo "$role, first turn:  $(ask "$system,$question")"
    echo "$role, second turn: $(ask "$system,$question,$answer,$(message user 'And a prefix?')")"
done

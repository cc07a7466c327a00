#!/usr/bin/env bash
# run.sh [URL] [SECONDS]: loads a running server with wrk and prints one table.
#   URL      http://127.0.0.1:8000; loopback only
#   SECONDS  of each row, 1 to 60 (5); a row in which no reply came is repeated with 60
# TOKEND_API_KEY, LOAD_MODEL (default: the server's first), LOAD_MAX_TOKENS (32), LOAD_CONNECTIONS
# ("1 16 64"), LOAD_SCENARIOS ("health models whole stream prefix").
# p50 and p99 are times of whole replies. Absolute figures depend on the machine and on what else
# it does: compare by ratio, in one run. The exit status is 1 when anything went wrong.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../config/packages.sh"

url=${1:-http://127.0.0.1:8000} seconds=${2:-5}
url=${url%/}
if [[ ! $url =~ ^http://(127\.[0-9.]+|localhost|\[::1\])(:[0-9]+)?$ ]]; then
    echo "run.sh: $url: expected a loopback address, such as http://127.0.0.1:8000" >&2
    exit 2
fi
if [[ ! $seconds =~ ^[0-9]+$ ]] || [ "$seconds" -lt 1 ] || [ "$seconds" -gt 60 ]; then
    echo "run.sh: $seconds: expected 1 to 60 seconds" >&2
    exit 2
fi
command -v wrk >/dev/null || need_packages wrk
command -v curl >/dev/null || need_packages curl

auth=()
[ -z "${TOKEND_API_KEY:-}" ] || auth=(-H "Authorization: Bearer $TOKEND_API_KEY")
if ! models=$(curl -sS --fail-with-body -m 10 "${auth[@]}" "$url/v1/models"); then
    echo "run.sh: $url/v1/models does not answer: start \`tokend serve MODEL\` first${models:+ ($models)}" >&2
    exit 1
fi
if [ -z "${LOAD_MODEL:-}" ]; then
    LOAD_MODEL=$(sed -nE 's/.*"data": *\[\{([^}]*,)? *"id": *"([^"]*)".*/\2/p' <<<"$models" | head -1)
fi
export LOAD_MODEL

failed=0
# load SECONDS SCENARIO PATH SCRIPT CONNECTIONS: what wrk counted, as common.lua prints it.
load() {
    local threads=2
    [ "$5" -ge 2 ] || threads=1
    timeout $(($1 + 90)) wrk -t$threads -c"$5" -d"$1s" --timeout 60s -s "$here/$4.lua" "$url$3" >"$log" 2>&1 || true
    sed -n 's/^RESULT //p' "$log"
}

row() { # row SCENARIO PATH SCRIPT CONNECTIONS
    local result rate=- p50=- p99=- count=0 errors=1 note
    result=$(load "$seconds" "$@")
    # A reply may take longer than the row: nothing counted is nothing measured.
    if [[ $result == *" 0 0 "* ]]; then
        result=$(load 60 "$@")
    fi
    note="wrk failed: $(tail -1 "$log")"
    [ -z "$result" ] || read -r rate p50 p99 count errors note <<<"$result"
    if [ "$count" = 0 ] && [ "$errors" = 0 ]; then
        errors=1 note="no reply within 60 s"
    fi
    [ "$errors" = 0 ] || failed=1
    printf '%-9s %11s %11s %10s %10s %7s  %s\n' "$1" "$4" "$rate" "$p50" "$p99" "$errors" "$note"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf '%-9s %11s %11s %10s %10s %7s\n' scenario connections requests/s "p50 ms" "p99 ms" errors
for scenario in ${LOAD_SCENARIOS:-health models whole stream prefix}; do
    for connections in ${LOAD_CONNECTIONS:-1 16 64}; do
        case $scenario in
        health) row health /health get "$connections" ;;
        models) row models /v1/models get "$connections" ;;
        whole | stream | prefix) row "$scenario" /v1/chat/completions "$scenario" "$connections" ;;
        *) echo "run.sh: LOAD_SCENARIOS: no scenario \"$scenario\"" >&2; exit 2 ;;
        esac
    done
done
if ! curl -sf -m 10 "$url/health" >/dev/null; then
    echo "run.sh: the server is not healthy after the load" >&2
    failed=1
fi
exit $failed

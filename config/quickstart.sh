#!/usr/bin/env bash
# quickstart.sh: from a fresh Debian 12 to a streamed answer. Installs the packages, builds,
# fetches the default model, asks one question and goes on serving until interrupted.
#   --once      stop after the answer
#   --port N    default 8000
# The server takes its other settings from TOKEND_* variables as always (not the model, the port and
# the log); the question goes to TOKEND_HOST with TOKEND_API_KEY.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. config/packages.sh

port=8000 once=
while [ $# -gt 0 ]; do
    case $1 in
    --once) once=1 ;;
    --port) port=${2:-}; [ $# -lt 2 ] || shift ;;
    --port=*) port=${1#--port=} ;;
    *) echo "usage: bash config/quickstart.sh [--once] [--port N]" >&2; exit 2 ;;
    esac
    shift
done
if ! [[ $port =~ ^[0-9]{1,5}$ ]] || [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then
    echo "--port $port: a whole number from 1 to 65535" >&2
    exit 2
fi

host=${TOKEND_HOST:-127.0.0.1}
case $host in
0.0.0.0) host=127.0.0.1 ;;
::) host=[::1] ;;
*:*) host=[$host] ;;
esac
bare=${host#[}
if (exec 3<>"/dev/tcp/${bare%]}/$port") 2>/dev/null; then
    echo "port $port of $host is in use already; --port N takes another" >&2
    exit 1
fi

need_packages $build_packages curl ca-certificates
TARGETS=tokend build_tokend build
model=$(bash config/model.sh)

log=$(mktemp)
build/tokend serve "$model" --port "$port" --log-level info --log-format text 2>"$log" &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -f "$log"' EXIT
until grep -q "listening on" "$log"; do
    if ! kill -0 $server 2>/dev/null; then
        cat "$log" >&2
        exit 1
    fi
    sleep 0.1
done
cat "$log" >&2

request='{"messages": [{"role": "user", "content": "Why is the sky blue? Answer in one sentence."}],
          "stream": true, "temperature": 0, "max_tokens": 64}'
echo
echo "\$ curl -N http://$host:$port/v1/chat/completions -H 'Content-Type: application/json' -d '$request'"
curl -sSN --noproxy '*' --fail-with-body "http://$host:$port/v1/chat/completions" \
    -H 'Content-Type: application/json' -H "Authorization: Bearer ${TOKEND_API_KEY:-none}" \
    -d "$request" |
    sed -un 's/^data: .*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/p' |
    while IFS= read -r piece; do printf '%b' "$piece"; done
echo
[ -n "$once" ] && exit 0

echo
echo "Serving on http://$host:$port/v1 until interrupted (Ctrl-C)."
tail -n +1 -f "$log" --pid=$server | sed -n '/listening on/,$p' &
wait $server

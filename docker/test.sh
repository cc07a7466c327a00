#!/usr/bin/env bash
# test.sh [BASE]: builds the image and runs it, with docker, podman or buildah, whichever works.
# BASE: the base image (default: the Dockerfile's). ENGINE: docker, podman or buildah, to insist.
# BUILD_ARGS and RUN_ARGS: more words for the engine's build and run.
# Needs no network but the build's: servers and clients share a network of their own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${1:-}
image=localhost/tokend-test:$$ name=tokend-test-$$ port=$((20000 + RANDOM % 10000)) key=key-$RANDOM
model=llama_k.Q4_1.gguf
out=$(mktemp -d)
read -ra build_args <<<"${BUILD_ARGS:-}"
read -ra run_args <<<"${RUN_ARGS:-}"
passed=0 failed=0

# A client may be there without its engine, so each is asked for something that needs it.
works() {
    command -v "$1" >/dev/null && timeout 20 "$1" info >/dev/null 2>&1
}
engine=
for e in ${ENGINE:-docker podman buildah}; do
    if works "$e"; then
        engine=$e
        break
    fi
done
if [ -z "$engine" ]; then
    echo "SKIPPED: the container image was neither built nor run: no working docker, podman or buildah here"
    exit 0
fi

check() { # check NAME COMMAND...
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok: $what"
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
    fi
}

# The engine's part: build, start (in the background), inside, client, terminate, ends_with_0
# and the like.
limits=(--read-only --cap-drop ALL --security-opt no-new-privileges
    -v "$PWD/tests/data:/models:ro" -e "TOKEND_API_KEY=$key" -e "TOKEND_PORT=$port")
case $engine in
docker | podman)
    build() {
        local format=()
        # Without layers nothing of the build stage stays behind.
        [ "$engine" = docker ] || format=(--format docker --layers=false)
        "$engine" build "${format[@]}" "$@" -f docker/Dockerfile -t "$image" .
    }
    start() {
        "$engine" run -d --name "$name" --network none "${limits[@]}" "${run_args[@]}" "$image" "$@" >/dev/null
    }
    inside() { "$engine" exec "$name" "$@"; }
    # In a container of its own, which outlives the server's.
    client() {
        "$engine" run --rm --network "container:$name" "${run_args[@]}" --entrypoint "$1" "$image" "${@:2}"
    }
    terminate() { "$engine" kill -s TERM "$name" >/dev/null; }
    ends_with_0() { [ "$(timeout 60 "$engine" wait "$name")" = 0 ]; }
    running() { [ "$("$engine" inspect -f '{{.State.Running}}' "$name")" = true ]; }
    logs() { "$engine" logs "$name" 2>&1; }
    refuse() { "$engine" run --rm --network none "${run_args[@]}" "$image" "$@"; }
    clean() {
        "$engine" rm -f "$name"
        "$engine" rmi -f "$image"
    }
    ;;
buildah)
    build() { buildah build --format docker --layers=false "$@" -f docker/Dockerfile -t "$image" .; }
    in_container() {
        buildah run "${run_args[@]}" --env "TOKEND_API_KEY=$key" --env "TOKEND_PORT=$port" \
            -v "$PWD/tests/data:/models:ro" "$name" -- "$@"
    }
    start() {
        buildah from --name "$name" "$image" >/dev/null
        in_container tokend serve "$@" >"$out/log" 2>&1 &
        job=$!
    }
    inside() { in_container "$@"; }
    client() { in_container "$@"; }
    # buildah run does not pass signals on, and its container has no process of its own to ask for.
    terminate() { kill -TERM "$(server)"; }
    server() { pgrep -fx "(/[^ ]*/)?tokend serve .* --served-model-name $name"; }
    ends_with_0() { wait "$job"; }
    running() { kill -0 "$job" 2>/dev/null; }
    logs() { cat "$out/log"; }
    refuse() { buildah run "${run_args[@]}" "$name" -- tokend serve "$@"; }
    clean() {
        ! server >/dev/null || terminate
        buildah rm "$name"
        buildah rmi -f "$image"
    }
    ;;
esac
finish() {
    [ "$failed" = 0 ] || { echo "--- log of the server"; logs || true; }
    clean >/dev/null 2>&1 || true
    rm -rf "$out"
}
trap finish EXIT

# request METHOD PATH [BODY]: the whole reply, headers included. The address proves that the
# server listens on more than 127.0.0.1.
request() {
    local body=${3:-}
    client bash -c 'exec 3<>"/dev/tcp/127.0.0.2/$1"; printf %s "$2" >&3; cat <&3' client "$port" \
        "$1 $2 HTTP/1.1"$'\r\n'"Host: test"$'\r\n'"Authorization: Bearer ${asked_key:-$key}"$'\r\n'"Connection: close"$'\r\n'"Content-Type: application/json"$'\r\n'"Content-Length: ${#body}"$'\r\n\r\n'"$body"
}
status_of() { [[ $(request "${@:2}") == "HTTP/1.1 $1 "* ]]; }

echo "=== building with $engine"
build ${base:+--build-arg "BASE=$base"} "${build_args[@]}" >"$out/build.log" 2>&1 || {
    tail -40 "$out/build.log"
    echo "FAILED: the image does not build"
    exit 1
}
echo "=== running"
start "$model" --drain-timeout 30 --served-model-name "$name" || {
    echo "FAILED: the container does not start"
    exit 1
}

becomes_healthy() {
    local i
    for ((i = 0; i < 100; i++)); do
        inside tokend-health 2>/dev/null && return 0
        running || return 1
        sleep 0.2
    done
    return 1
}
runs_as_10001() { [ "$(inside id -u)" = 10001 ] && { [ "$engine" = buildah ] || inside grep -q '^Uid:.10001' /proc/1/status; }; }
root_is_read_only() {
    inside bash -c 'while read -r _ dir _ options _; do
        [ "$dir" != / ] || root=$options; done </proc/mounts; [[ ,$root, == *,ro,* ]]'
}
has_no_compiler() { inside bash -c '! command -v gcc && ! command -v meson' >/dev/null; }
completes() {
    local reply
    reply=$(request POST /v1/completions '{"prompt": [3, 4, 5], "max_tokens": 8, "temperature": 0, "ignore_eos": true}')
    [[ $reply == "HTTP/1.1 200 "* && $reply =~ \"completion_tokens\":\ *8 ]] || { echo "$reply"; return 1; }
}
refuses_without_a_key() {
    local said
    said=$(refuse "$model" 2>&1) && return 1
    [[ $said == *--api-key* ]] || { echo "$said"; return 1; }
}
# A stream that runs when SIGTERM comes ends as if nothing had happened, and then the server does.
drains() {
    local stream client_job i
    request POST /v1/completions '{"prompt": [3, 4, 5], "n": 32, "max_tokens": 200, "ignore_eos": true, "stream": true}' \
        >"$out/stream" &
    client_job=$!
    for ((i = 0; i < 200; i++)); do
        ! grep -q '^data:' "$out/stream" || break
        sleep 0.05
    done
    ! grep -q 'DONE' "$out/stream" || echo "note: the stream ended before the signal"
    terminate
    ends_with_0 || { echo "the server's exit status is not 0"; return 1; }
    wait "$client_job" || true
    stream=$(tr -d '\r' <"$out/stream")
    [[ $stream == *'data: [DONE]'* && $stream != *'"error"'* ]] || { tail -3 "$out/stream"; return 1; }
}

check "health becomes 200" becomes_healthy
check "runs as user 10001" runs_as_10001
if [ "$engine" = buildah ]; then
    echo "not run: buildah runs with a writable root"
else
    check "the root file system is read-only" root_is_read_only
fi
check "the build's tools are not in the image" has_no_compiler
check "a completion of token ids" completes
asked_key=wrong check "a wrong key gets 401" status_of 401 GET /v1/models
check "without a key it refuses to listen on all addresses" refuses_without_a_key
check "SIGTERM drains" drains
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

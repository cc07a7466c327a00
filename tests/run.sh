#!/usr/bin/env bash
# Builds everything and runs every quick test; installs what that needs. See tests/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

packages="gcc meson ninja-build pkg-config libmicrohttpd-dev libjansson-dev libuv1-dev libpcre2-dev libcmocka-dev curl python3-venv"
missing=""
for p in $packages; do
    dpkg -s "$p" >/dev/null 2>&1 || missing="$missing $p"
done
if [ -n "$missing" ]; then
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends $missing
fi

build=${TOKEND_BUILD:-build}
[ -d "$build" ] || meson setup "$build" --werror
ninja -C "$build"
meson test -C "$build" --print-errorlogs

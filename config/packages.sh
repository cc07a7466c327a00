# packages.sh: sourced by the scripts that install what they need.

# Debian packages that building and running tokend needs.
build_packages="gcc libc6-dev meson ninja-build pkg-config libmicrohttpd-dev libjansson-dev libuv1-dev libpcre2-dev"

# need_packages NAME...: installs those that are missing, and says so.
need_packages() {
    local missing=() p sudo=()
    for p in "$@"; do
        dpkg -s "$p" 2>/dev/null | grep -q '^Status: install ok installed' || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    echo "installing: ${missing[*]}" >&2
    "${sudo[@]}" apt-get update -qq >&2
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# build_tokend DIR [meson options]: configures once, then builds.
build_tokend() {
    local dir=$1
    shift
    [ -f "$dir/build.ninja" ] || meson setup "$dir" "$@" >&2
    ninja -C "$dir" >&2
}

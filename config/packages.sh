# packages.sh: sourced by the scripts that install what they need.

# Debian packages that building and running tokend needs.
build_packages="gcc libc6-dev meson ninja-build pkg-config libmicrohttpd-dev libjansson-dev libuv1-dev libpcre2-dev libutf8proc-dev"

# need_packages NAME...: installs those that are missing, and says so.
need_packages() {
    local missing=() p sudo=() log
    for p in "$@"; do
        [ "$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null)" = "install ok installed" ] || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        sudo=(sudo)
        command -v sudo >/dev/null || {
            echo "missing packages; as root: apt-get install ${missing[*]}" >&2
            return 1
        }
    fi
    echo "installing: ${missing[*]}" >&2
    log=$(mktemp)
    if ! { "${sudo[@]}" apt-get update -q &&
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# build_tokend DIR [meson options]: configures, or configures anew for what was installed since
# and for other options, then builds all, or what TARGETS names.
build_tokend() {
    local dir=$1
    shift
    [ ! -f "$dir/build.ninja" ] || set -- --reconfigure "$@"
    meson setup "$dir" "$@" >&2
    # shellcheck disable=SC2086
    ninja -C "$dir" ${TARGETS:-} >&2
}

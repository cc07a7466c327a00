# aarch64.sh: sourced by full.sh; builds for AArch64 and runs the tests of what differs there under
# qemu. Float operations are 20 times slower so: TOKEND_EMULATED leaves out the largest shapes.

aarch64_packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
# Of build_packages, what is linked, and what the tests want
aarch64_libraries="libmicrohttpd-dev libjansson-dev libuv1-dev libpcre2-dev libutf8proc-dev libcmocka-dev"
aarch64_build=$PWD/build-aarch64
aarch64_root=$aarch64_build/root # the libraries: what / is there

# Installs compiler and emulator and unpacks the libraries. Apt gets folders of its own, so that this
# machine stays one of a single architecture.
aarch64_install() {
    local apt=$aarch64_build/apt deb options
    need_packages $aarch64_packages || return 1
    [ ! -d "$aarch64_root" ] || return 0
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    options=(-qq -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt"
        -o APT::Architecture=arm64 -o APT::Architectures=arm64)
    apt-get "${options[@]}" update || return 1
    apt-get "${options[@]}" install -y --download-only --no-install-recommends \
        $aarch64_libraries || return 1
    for deb in "$apt"/archives/*.deb; do
        dpkg-deb -x "$deb" "$aarch64_root.part" || return 1
    done
    mv "$aarch64_root.part" "$aarch64_root" && rm -rf "$apt"
}

# Meson's cross file
aarch64_machine() {
    cat <<EOF
[binaries]
c = 'aarch64-linux-gnu-gcc'
cpp = 'aarch64-linux-gnu-g++'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$aarch64_root']
[built-in options]
c_link_args = '-Wl,-rpath-link,$aarch64_root/usr/lib/aarch64-linux-gnu:$aarch64_root/lib/aarch64-linux-gnu'
cpp_link_args = c_link_args
[properties]
sys_root = '$aarch64_root'
pkg_config_libdir = '$aarch64_root/usr/lib/aarch64-linux-gnu/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
EOF
}

# The program, and what no test builds
aarch64_compile() {
    local again=
    aarch64_machine >"$aarch64_build/machine.ini"
    [ ! -f "$aarch64_build/build.ninja" ] || again=--reconfigure
    meson setup "$aarch64_build" $again --cross-file "$aarch64_build/machine.ini" --werror &&
        ninja -C "$aarch64_build" tokend tests/machine_limits
}

# aarch64_tests PROCESSOR TEST...
aarch64_tests() {
    QEMU_CPU=$1 TOKEND_EMULATED=1 meson test -C "$aarch64_build" --print-errorlogs -t 10 "${@:2}"
}

# aarch64_program PROCESSOR SET: the program chooses this set there, and runs.
aarch64_program() {
    local said
    said=$(QEMU_CPU=$1 qemu-aarch64 -L "$aarch64_root" "$aarch64_build/tokend" bench \
        tests/data/llama_k.Q4_1.gguf --threads 1 --prompt 16 --generate 4 --depth 0 --batch 1 2>&1)
    echo "$said"
    [[ $said == *"cpu: $2,"* ]]
}

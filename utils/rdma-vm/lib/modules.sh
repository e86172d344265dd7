# shellcheck shell=bash
# Compiles kernel modules that Debian does not build, for the guest's kernel. The next build adds them to the guest.

# modules [DIR|siw ...]
modules() {
    local headers source tool
    [ $# -gt 0 ] || set -- siw "$HERE/dmabuf-shim/module"
    check_host
    lock_cache
    for tool in make gcc; do command -v "$tool" >/dev/null || unavailable "no $tool on this machine"; done
    fetch_kernel
    scratch_dir headers
    unpack_headers "$headers"
    mkdir -p "$KERNEL/extra"
    for source; do
        if [ "$source" = siw ]; then
            fetch_siw "$headers/siw-source"
            source=$headers/siw-source
            compile_module siw "$source"
        else
            compile_module "$(basename "$(realpath "$source")")" "$source"
        fi
    done
    note "modules of $SUITE: $(cd "$KERNEL/extra" && echo *.ko)"
    unlock_cache
    build
}

# unpack_headers DIRECTORY: the headers and build tools of exactly the kernel in the cache.
unpack_headers() {
    local release names
    release=$(kernel_release)
    if [ ! -e "$CACHE/debs/headers-$SUITE/$release" ]; then
        open_suite "$SUITE"
        names=$(depends "$SUITE" "linux-headers-$release" 'linux-(headers|kbuild)-[0-9].*') ||
            die "$SUITE no longer has the headers of $release: remove $CACHE/debs/kernel-$SUITE and $KERNEL"
        # shellcheck disable=SC2086
        fetch "headers-$SUITE" "$SUITE" "linux-headers-$release" $names
        : >"$CACHE/debs/headers-$SUITE/$release"
    fi
    unpack "headers-$SUITE" "$1"
    HEADERS=$1/usr/src/linux-headers-$release
    sed -i "s#/usr/src/#$1/usr/src/#" "$HEADERS/Makefile"
    # With it the build would need pahole.
    rm -f "$HEADERS/vmlinux"
}

# fetch_siw DIRECTORY: no Debian kernel has siw built, but the source package of each has it.
fetch_siw() {
    local version set=source-$SUITE
    version=$(kernel_release | sed -E 's/^([0-9]+\.[0-9]+).*/\1/')
    fetch "$set" "$SUITE" "linux-source-$version"
    mkdir -p "$1"
    dpkg --fsys-tarfile "$CACHE/debs/$set"/*.deb | tar -xO "./usr/src/linux-source-$version.tar.xz" |
        tar -xJ -C "$1" --strip-components=5 "linux-source-$version/drivers/infiniband/sw/siw"
}

# compile_module NAME SOURCE
compile_module() {
    local work object
    scratch_dir work
    cp -r "$2" "$work/$1"
    note "module $1"
    timeout -k 5 600 make -s -C "$HEADERS" M="$work/$1" CONFIG_RDMA_SIW=m modules >&2
    for object in "$work/$1"/*.ko; do strip -g -o "$KERNEL/extra/$(basename "$object")" "$object"; done
}

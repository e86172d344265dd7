# shellcheck shell=bash
# What the guests run on: QEMU, a kernel, and its initial file system. Each is a layer in the cache with a stamp
# of its inputs; build rebuilds the layers whose stamp differs.

LIBRARIES=usr/lib/x86_64-linux-gnu
TOOLS="dash timeout env nice chroot ip tc rdma ss ibv_devices ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ibv_asyncwatch rping
    rstream riostream rcopy ucmatose cmtime ib_write_bw ib_write_lat ib_send_bw ib_send_lat ib_read_bw ib_read_lat
    ib_atomic_bw ib_atomic_lat nc.traditional iperf"
# Loaded in this order; modules that a kernel has built in, or lacks, are skipped. rxe and siw load their checksums with
# modprobe, which the guest lacks, so these come first.
MODULES="crc32_generic crc32c_generic crc32c_intel ib_uverbs rdma_ucm rdma_rxe siw dmabuf_shim dummy veth virtio_pci
    virtio_net sch_netem udmabuf"

SYSROOT=$CACHE/sysroot
QEMU=$CACHE/qemu
KERNEL=$CACHE/kernel/$SUITE

# is_stamped DIRECTORY TEXT
is_stamped() { [ "$(cat "$1/stamp" 2>/dev/null)" = "$2" ]; }

digest() { sha256sum | cut -d' ' -f1; }
digest_files() { find "$@" -type f -print0 | sort -z | xargs -0r sha256sum | digest; }

# One builder at a time: several jobs may share a cache.
lock_cache() {
    mkdir -p "$CACHE"
    exec {LOCK}>"$CACHE/lock"
    flock -w 900 "$LOCK" || die "another build holds $CACHE/lock"
}
unlock_cache() { exec {LOCK}>&-; }

# If everything is in place this takes no time and no network.
build() {
    check_host
    lock_cache
    build_qemu
    build_sysroot
    build_kernel
    build_base
    unlock_cache
}

build_qemu() {
    [ -z "${RDMA_VM_QEMU:-}" ] || return 0
    local stamp tree
    stamp=$(echo "$QEMU_PACKAGES $QEMU_LIBRARIES" | digest)
    ! is_stamped "$QEMU" "$stamp" || return 0
    # shellcheck disable=SC2086
    fetch qemu "$QEMU_SUITE" $QEMU_PACKAGES
    # shellcheck disable=SC2086
    fetch qemu-libraries "$RELEASE" $QEMU_LIBRARIES
    scratch_dir tree
    unpack qemu "$tree"
    unpack qemu-libraries "$tree"
    rm -rf "$QEMU"
    mkdir -p "$QEMU/lib" "$QEMU/share"
    mv "$tree/usr/bin/qemu-system-x86_64" "$QEMU/"
    cp -L "$tree/usr/share/seabios/bios-256k.bin" "$tree"/usr/share/qemu/{linuxboot_dma,kvmvapic}.bin "$QEMU/share/"
    LD_LIBRARY_PATH="$tree/$LIBRARIES:$tree/lib/x86_64-linux-gnu" ldd "$QEMU/qemu-system-x86_64" >"$tree/ldd"
    if grep 'not found' "$tree/ldd" >&2; then die "QEMU_LIBRARIES lacks these"; fi
    sed -n "s#.* => \($tree/[^ ]*\) .*#\1#p" "$tree/ldd" | xargs cp -L -t "$QEMU/lib"
    rm -rf "$tree"
    echo "$stamp" >"$QEMU/stamp"
}

build_sysroot() {
    local stamp
    stamp=$(echo "$USER_PACKAGES" | digest)
    ! is_stamped "$SYSROOT" "$stamp" || return 0
    # shellcheck disable=SC2086
    fetch user "$RELEASE" $USER_PACKAGES
    rm -rf "$SYSROOT"
    unpack user "$SYSROOT"
    rm -rf "${SYSROOT:?}/usr/share"
    echo "$stamp" >"$SYSROOT/stamp"
}

# The kernel, the modules that the guest loads and their order, which follows from the modules' own `depends=`.
build_kernel() {
    local stamp tree name
    mkdir -p "$KERNEL/extra"
    stamp=$({ echo "$MODULES"; digest_files "$KERNEL/extra"; } | digest)
    if is_stamped "$KERNEL" "$stamp"; then return 0; fi
    fetch_kernel
    note "kernel $(kernel_release)"
    scratch_dir tree
    unpack "kernel-$SUITE" "$tree"
    rm -rf "$KERNEL/ko"
    mkdir -p "$KERNEL/ko"
    cp "$(find "$tree" -name 'vmlinuz*' -type f | head -n1)" "$KERNEL/vmlinuz"
    # Own modules first: dependencies are looked up by the first match.
    find "$KERNEL/extra" "$tree" -name '*.ko*' >"$tree/available"
    : >"$KERNEL/ko/order"
    for name in $MODULES; do add_module "$name" "$tree/available"; done
    rm -rf "$tree"
    kernel_release >"$KERNEL/release"
    echo "$stamp" >"$KERNEL/stamp"
}

# add_module NAME AVAILABLE: adds its dependencies, then the module itself.
add_module() {
    local name=${1//-/_} file dependency
    if grep -qx "$name" "$KERNEL/ko/order"; then return 0; fi
    file=$(grep -m1 -E "/${name//_/[-_]}\.ko(\.xz|\.zst)?$" "$2") || return 0
    case $file in
        *.xz) xz -dc "$file" >"$KERNEL/ko/$name.ko" ;;
        *.zst) zstd -qdc "$file" >"$KERNEL/ko/$name.ko" ;;
        *) cp "$file" "$KERNEL/ko/$name.ko" ;;
    esac
    for dependency in $(tr '\0' '\n' <"$KERNEL/ko/$name.ko" | sed -n 's/^depends=//p' | tr , ' '); do
        add_module "$dependency" "$2"
    done
    echo "$name" >>"$KERNEL/ko/order"
}

# copy_libraries ROOT FILE...: copies the shared libraries that the ELF files need, preferably from the packages, else from
# this host.
copy_libraries() {
    local root=$1 library
    shift
    mkdir -p "$root/$LIBRARIES" "$root/lib64"
    { LD_LIBRARY_PATH="$SYSROOT/$LIBRARIES:$SYSROOT/lib/x86_64-linux-gnu" ldd "$@" 2>/dev/null || :; } |
        sed -n -e 's/.* => \(\/[^ ]*\) .*/\1/p' -e 's/^[[:space:]]*\(\/lib64\/[^ ]*\) .*/\1/p' | sort -u |
        while read -r library; do
            case $library in
                /lib64/*) cp -Lu "$library" "$root/lib64/" ;;
                *) cp -Lu "$library" "$root/$LIBRARIES/" ;;
            esac
        done
}

# archive DIRECTORY: writes an initial file system for the kernel.
archive() { (cd "$1" && find . | "$SYSROOT/bin/busybox" cpio -o -H newc -R 0:0 2>/dev/null); }

build_base() {
    local stamp root
    stamp=$({ cat "$SYSROOT/stamp" "$KERNEL/stamp"; echo "$TOOLS"; digest_files "$HERE/guest"; digest <"$HERE/lib/image.sh"; } | digest)
    if [ "$(cat "$KERNEL/base.stamp" 2>/dev/null)" = "$stamp" ]; then return 0; fi
    scratch_dir root
    mkdir -p "$root"/{usr/bin,usr/lib,proc,sys,dev,tmp,job,run,etc,root}
    ln -s usr/bin "$root/bin"
    ln -s usr/bin "$root/sbin"
    ln -s usr/lib "$root/lib"
    base_tools "$root"
    base_rdma "$root"
    cp -r "$KERNEL/ko" "$root/ko"
    cp "$HERE/guest/init" "$root/init"
    cp "$HERE"/guest/bin/* "$root/usr/bin/"
    chmod 755 "$root/init" "$root/usr/bin"/*
    printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    chmod 755 "$root"
    archive "$root" | gzip -4 >"$KERNEL/base.cpio.gz.new"
    mv "$KERNEL/base.cpio.gz.new" "$KERNEL/base.cpio.gz"
    echo "$stamp" >"$KERNEL/base.stamp"
}

base_tools() {
    local root=$1 tool file
    cp "$SYSROOT/bin/busybox" "$root/usr/bin/"
    # Not busybox's own shell: it would run its own ip and timeout rather than those below.
    ln -s dash "$root/usr/bin/sh"
    for tool in $TOOLS; do
        file=$(find "$SYSROOT/bin" "$SYSROOT/sbin" "$SYSROOT/usr/bin" "$SYSROOT/usr/sbin" -name "$tool" | head -n1)
        [ -n "$file" ] || die "no package has $tool"
        cp -L "$file" "$root/usr/bin/$tool"
        copy_libraries "$root" "$file"
    done
}

# User-space drivers, the rsocket preload library, and what is loaded by name at run time.
base_rdma() {
    local root=$1 driver
    mkdir -p "$root/etc/libibverbs.d" "$root/$LIBRARIES/libibverbs" "$root/$LIBRARIES/rsocket"
    for driver in rxe siw; do
        cp "$SYSROOT/etc/libibverbs.d/$driver.driver" "$root/etc/libibverbs.d/"
        cp "$SYSROOT/$LIBRARIES"/libibverbs/lib$driver-*.so "$root/$LIBRARIES/libibverbs/"
    done
    cp -a "$SYSROOT/$LIBRARIES"/rsocket/librspreload.so* "$root/$LIBRARIES/rsocket/"
    ln -s "rsocket/librspreload.so.1" "$root/$LIBRARIES/librspreload.so.1"
    # pthread_exit loads this one.
    cp "$SYSROOT/lib/x86_64-linux-gnu/libgcc_s.so.1" "$root/$LIBRARIES/"
}

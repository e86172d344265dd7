# shellcheck shell=bash disable=SC2034,SC2153
# Debian packages, fetched and unpacked without being installed.
#
# apt gets its own sources, lists and status below a scratch directory; only the mirror comes from the host's setup.
# Packages stay in $CACHE/debs: mirrors drop old backports, so the cache is also what pins the versions.

# The project's programs are built against this host's libraries, so the guest's user space is of the same release.
RELEASE=bookworm
# QEMU from the backports: before 8.1 its emulator corrupts busy guests.
QEMU_SUITE=$RELEASE-backports
QEMU_PACKAGES="qemu-system-x86 qemu-system-data seabios"
QEMU_LIBRARIES="libaio1 libbpf1 libcapstone4 libdaxctl1 libelf1 libfdt1 libffi8 libglib2.0-0 libgmp10 libgnutls30
    libhogweed6 libibverbs1 libidn2-0 libjpeg62-turbo libkmod2 libmount1 libblkid1 libndctl6 libnettle8 libnl-3-200
    libnl-route-3-200 libnuma1 libp11-kit0 libpcre2-8-0 libpixman-1-0 libpmem1 libpng16-16 librdmacm1 libsasl2-2
    libseccomp2 libslirp0 libssl3 libtasn1-6 libudev1 libunistring2 liburing2 libuuid1 libvdeplug2 libzstd1"
USER_PACKAGES="busybox-static dash coreutils iproute2 libibverbs1 ibverbs-providers ibverbs-utils librdmacm1 rdmacm-utils
    perftest netcat-traditional iperf libnl-3-200 libnl-route-3-200 libibumad3 libpci3 libmnl0 libbpf1 libbsd0 libmd0
    libcap2 libdb5.3 libelf1 libselinux1 libpcre2-8-0 libtirpc3 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0
    libcom-err2 libkeyutils1 libxtables12 libudev1 libstdc++6 libgcc-s1 gcc-12-base"

# scratch_dir NAME: sets the variable NAME to a new directory beside the cache's content.
scratch_dir() {
    mkdir -p "$CACHE"
    local __scratch # no name that a caller would use
    __scratch=$(mktemp -d "$CACHE/tmp.XXXXXX")
    SCRATCH+=("$__scratch")
    printf -v "$1" %s "$__scratch"
}

check_host() {
    local tool id
    id=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ "$id" = "$RELEASE" ] || unavailable "this is not Debian $RELEASE (but '$id'), whose packages the guest is made of"
    for tool in apt-get dpkg xz gzip ldd flock; do
        command -v "$tool" >/dev/null || unavailable "no $tool on this machine"
    done
}

# The mirror in the host's own setup, or Debian's.
mirror() {
    local found
    # shellcheck disable=SC2016
    found=$(apt-get indextargets --no-release-info --format '$(REPO_URI)' \
        'Created-By: Packages' "Release: $RELEASE" 'Component: main' 2>/dev/null | head -n1) || :
    echo "${found:-http://deb.debian.org/debian}"
}

# private_apt SUITE TOOL ARG...: runs an apt tool that sees only that suite. The status is empty: apt would otherwise
# prefer what the host has installed.
private_apt() {
    local root=$APT/$1 tool=$2
    shift 2
    timeout -k 5 600 "$tool" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Retries=3 -o Acquire::http::Timeout=20 \
        -o Dir::Etc::sourcelist="$root/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$root/lists" -o Dir::State::status="$root/status" -o Dir::Cache="$root/cache" "$@"
}

# open_suite SUITE: fetches its package lists, once per run.
open_suite() {
    [ -n "${APT:-}" ] || scratch_dir APT
    local root=$APT/$1
    [ ! -e "$root/ready" ] || return 0
    note "package lists of $1"
    mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
    : >"$root/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(mirror) $1 main" >"$root/sources.list"
    # apt reports some failures to fetch only as warnings, hence the check of what came.
    private_apt "$1" apt-get update -q >&2 || :
    compgen -G "$root/lists/*_Packages*" >/dev/null || unavailable "the Debian mirror $(mirror) has no $1, or is out of reach"
    : >"$root/ready"
}

# fetch SET SUITE PACKAGE...: fetches the packages into $CACHE/debs/SET, unless this list is there already.
fetch() {
    local set=$CACHE/debs/$1 suite=$2
    shift 2
    local wanted="$suite: $*"
    if [ "$(cat "$set/wanted" 2>/dev/null)" = "$wanted" ]; then return 0; fi
    open_suite "$suite"
    rm -rf "$set"
    mkdir -p "$set"
    note "packages: $(basename "$set")"
    (cd "$set" && private_apt "$suite" apt-get download -q "$@" >/dev/null) ||
        unavailable "packages could not be fetched from $(mirror)"
    echo "$wanted" >"$set/wanted"
}

# unpack SET DIRECTORY
unpack() {
    local deb
    mkdir -p "$2"
    for deb in "$CACHE/debs/$1"/*.deb; do dpkg -x "$deb" "$2"; done
}

# depends SUITE PACKAGE PATTERN: the packages it depends on whose names match the extended regular expression.
depends() { private_apt "$1" apt-cache depends "$2" | sed -nE "s/.*Depends: *($3)\$/\1/p"; }

# The names behind linux-image-amd64: one package up to 6.18, three from 6.19 on.
kernel_packages() {
    local image
    image=$(depends "$SUITE" linux-image-amd64 'linux-image-[0-9].*' | head -n1)
    [ -n "$image" ] || die "no linux-image-amd64 in $SUITE"
    echo "$image"
    depends "$SUITE" "$image" 'linux-(binary|modules)-[0-9].*'
}

# The release of the kernel in the cache, such as 6.12.95+deb12-amd64; the packages are fetched if need be.
fetch_kernel() {
    local set=$CACHE/debs/kernel-$SUITE names
    if ! compgen -G "$set/linux-image-*.deb" >/dev/null || [ ! -e "$set/wanted" ]; then
        open_suite "$SUITE"
        names=$(kernel_packages)
        # shellcheck disable=SC2086
        fetch "kernel-$SUITE" "$SUITE" $names
    fi
}
kernel_release() { basename "$CACHE/debs/kernel-$SUITE"/linux-image-*.deb | sed -E 's/linux-image-([^_]*)_.*/\1/'; }

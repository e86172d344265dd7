# shellcheck shell=bash disable=SC2153
# The scenarios: their list, what they need, the guests that run them, the summary.
#
# A scenario is a shell file in scenarios/ that a guest runs; exit code 0 is ok, 77 skipped, everything else failed. The
# comment at its head describes it (first line) and sets, as `# KEY: VALUE`:
#   in      quick or full
#   guests  namespaces (one guest, netns_pair made anew), one, or two (the file runs in both)
#   needs   what must be in the guest: gpunet-echo, gpunet-rstream (release builds), test:PACKAGE:NAME (a test binary, as
#           /job/PACKAGE-NAME), module:NAME, dmabuf-shim (preload library and check program)
#   limit   seconds
#   kernel  a Debian suite, if not the usual one
#   memory  megabytes of the guest, if not 512
#   boot    own: shares its guests with no other scenario
#   dies    2: guest 2 is gone at the end and reports nothing
# Scenarios with the same guests, kernel and memory run one after another in one boot.

SCENARIOS=$HERE/scenarios
# Where programs come from. If RDMA_VM_PROGRAMS is set, from there, and nothing is built.
PROGRAMS=${RDMA_VM_PROGRAMS:-}

declare -A REASON=()  # of a scenario that is not run
declare -A RESULT=()  # "ok 12 s" and the like
declare -A FILE_OF=() # what cargo and gcc made: need -> SRC:DST
declare -A LACKS=()   # need -> why it is not there

# header SCENARIO KEY [DEFAULT]
header() {
    local value
    value=$(sed -n "s/^# $2: *//p" "$SCENARIOS/$1.sh" | head -n1)
    echo "${value:-${3:-}}"
}

# The names of all scenarios; lib.sh is not one.
scenario_names() {
    local file
    for file in "$SCENARIOS"/*.sh; do
        file=$(basename "$file" .sh)
        [ "$file" = lib ] || echo "$file"
    done
}

list_scenarios() {
    local name
    for name in $(scenario_names); do
        printf '%-24s %-6s %-10s %s\n' "$name" "$(header "$name" in)" "$(header "$name" guests)" \
            "$(sed -n '1s/^# *//p' "$SCENARIOS/$name.sh")"
    done
}

# run_tests [--strict] [quick|full|NAME...]
run_tests() {
    local strict=0 names=() word
    for word; do
        case $word in
            --list) list_scenarios; return 0 ;;
            --strict) strict=1 ;;
            quick | full) names+=("$word") ;;
            *)
                if [ ! -e "$SCENARIOS/$word.sh" ] || [ "$word" = lib ]; then die "no scenario $word"; fi
                names+=("$word")
                ;;
        esac
    done
    [ "${#names[@]}" -gt 0 ] || names=(quick)
    mapfile -t names < <(expand_names "${names[@]}")

    build
    local key group
    prepare "${names[@]}"
    while read -r key group; do
        # shellcheck disable=SC2086
        run_group "$key" $group
    done < <(groups_of "${names[@]}")
    summary "$strict" "${names[@]}"
}

# expand_names WORD...: quick and full become names; nothing twice.
expand_names() {
    local word name
    for word; do
        for name in $(scenario_names); do
            case $word in
                full | "$name") echo "$name" ;;
                quick) [ "$(header "$name" in)" != quick ] || echo "$name" ;;
            esac
        done
    done | awk '!seen[$0]++'
}

# groups_of NAME...: prints a line for each boot, its key and its scenarios, without those that cannot run.
groups_of() {
    local name key
    for name; do
        [ -z "${REASON[$name]:-}" ] || continue
        key=$(header "$name" guests):$(header "$name" kernel "$SUITE"):$(header "$name" memory 512)
        [ "$(header "$name" boot)" != own ] || key+=:$name
        echo "$key $name"
    done | awk '{ if (!($1 in all)) order[++n] = $1; all[$1] = all[$1] " " $2 } END { for (i = 1; i <= n; i++) print order[i] all[order[i]] }'
}

# ---- what scenarios need ----

# prepare NAME...: makes what they need, or sets REASON if it cannot.
prepare() {
    local name need
    for name; do
        for need in $(header "$name" needs); do
            case $need in
                module:*) need_module "$(header "$name" kernel "$SUITE")" "${need#module:}" "$need" ;;
                *) need_file "$need" ;;
            esac
            if [ -n "${LACKS[$need]:-}" ]; then REASON[$name]=${LACKS[$need]}; fi
        done
    done
}

# need_file NEED: a file for the guest, in FILE_OF, or the reason in LACKS.
need_file() {
    [ -z "${FILE_OF[$1]:-}${LACKS[$1]:-}" ] || return 0
    if [ -n "$PROGRAMS" ]; then
        local name=${1#test:}
        if [ -e "$PROGRAMS/${name/:/-}" ]; then FILE_OF[$1]=$PROGRAMS/${name/:/-}; return 0; fi
    fi
    case $1 in
        dmabuf-shim) need_shim ;;
        test:*) need_test "$1" ;;
        example:*) need_example "$1" ;;
        *) need_program "$1" ;;
    esac
}

# cargo_limited ARG...: runs cargo with a time limit.
cargo_limited() { (cd "$ROOT" && timeout -k 10 1500 cargo "$@"); }

has_target() { cargo_limited metadata --no-deps --format-version 1 2>/dev/null | grep -q "\"kind\":\[\"$1\"\][^{}]*\"name\":\"$2\""; }

need_program() {
    if [ -n "$PROGRAMS" ] || ! has_target bin "$1"; then
        LACKS[$1]="there is no program $1"
    elif ! cargo_limited build --release --locked --bin "$1" >&2; then
        LACKS[$1]="FAILED: $1 cannot be built"
    elif [ "$1" != gpunet-diagnose ] && ! speaks_rc "$TARGET/release/$1"; then
        LACKS[$1]="$1 has no transport rc"
    else
        FILE_OF[$1]=$TARGET/release/$1
    fi
}

# speaks_rc PROGRAM: is rc among the transports that the help of its server, or of its measurement, names?
speaks_rc() {
    local part
    for part in server latency; do
        if timeout 20 "$1" "$part" --help 2>/dev/null | grep -A4 -e --transport | grep -qw rc; then return 0; fi
    done
    return 1
}

# need_example example:PACKAGE:NAME
need_example() {
    local package name
    IFS=: read -r _ package name <<<"$1"
    if [ -n "$PROGRAMS" ] || ! cargo_limited build --release --locked -p "$package" --example "$name" >&2; then
        LACKS[$1]="FAILED: example $name of $package cannot be built"
    else
        FILE_OF[$1]=$TARGET/release/examples/$name:/job/$package-$name
    fi
}

# need_test test:PACKAGE:NAME
need_test() {
    local package name binary made
    IFS=: read -r _ package name <<<"$1"
    if [ -n "$PROGRAMS" ] || ! has_target test "$name"; then
        LACKS[$1]="$package has no test $name"
        return 0
    fi
    binary=$(cargo_limited test --no-run --locked --test "$name" --message-format=json |
        sed -n "s/.*\"name\":\"$name\".*\"executable\":\"\([^\"]*\)\".*/\1/p" | tail -n1) || :
    scratch_dir made
    # Debug information would not fit into the guest's memory.
    if [ -n "$binary" ] && strip -g -o "$made/$package-$name" "$binary"; then
        FILE_OF[$1]=$made/$package-$name:/job/$package-$name
    else
        LACKS[$1]="FAILED: test $name of $package cannot be built"
    fi
}

need_shim() {
    local made
    if ! command -v gcc >/dev/null; then LACKS[dmabuf-shim]="no gcc on this machine"; return 0; fi
    scratch_dir made
    if gcc -O2 -Wall -shared -fPIC -o "$made/dmabuf_preload.so" "$HERE/dmabuf-shim/dmabuf_preload.c" -ldl &&
        gcc -O2 -Wall -o "$made/dmabuf_check" "$HERE/dmabuf-shim/dmabuf_check.c" \
            "$SYSROOT/$LIBRARIES/libibverbs.so.1" -Wl,--allow-shlib-undefined; then
        # Two files for one need: the directory, and what the check is linked to is in the guest anyway.
        FILE_OF[dmabuf-shim]=$made:/job/shim
    else
        LACKS[dmabuf-shim]="FAILED: dmabuf-shim cannot be compiled"
    fi
}

# need_module SUITE NAME NEED: compiled once and kept in the cache, in a run of its own because the suite is another.
need_module() {
    [ -z "${LACKS[$3]:-}" ] || return 0
    [ -e "$CACHE/kernel/$1/extra/$2.ko" ] ||
        RDMA_VM_SUITE=$1 "$HERE/rdma-vm" modules >&2 ||
        LACKS[$3]="FAILED: module $2 for $1 cannot be compiled"
}

# ---- boots ----

# run_group KEY NAME...: one boot; if the guests die on the way, another one for scenarios that had not started.
run_group() {
    local guests suite memory reports begun name left=("${@:2}")
    IFS=: read -r guests suite memory _ <<<"$1"
    while [ "${#left[@]}" -gt 0 ]; do
        scratch_dir reports
        : >"$reports/lines"
        boot_scenarios "$reports/lines" "${left[@]}" || :
        begun=0
        for name in "${left[@]}"; do
            if grep -q "^begin $name " "$reports/lines"; then
                begun=$((begun + 1))
                read_result "$name" "$reports/lines"
            fi
        done
        if [ "$begun" -eq 0 ]; then
            for name in "${left[@]}"; do RESULT[$name]="FAILED  the guest did not boot"; done
            return 0
        fi
        left=("${left[@]:begun}")
    done
}

# boot_scenarios REPORTS NAME...; the caller's guests, suite and memory.
boot_scenarios() {
    local reports=$1 name need limit sum=60 words='' files=() options=()
    shift
    for name; do
        limit=$(header "$name" limit 60)
        words+=" $name:$limit"
        sum=$((sum + limit + 30))
        for need in $(header "$name" needs); do
            [ -z "${FILE_OF[$need]:-}" ] || files+=("${FILE_OF[$need]}")
        done
    done
    files+=("$SCENARIOS:/job/scenarios")
    mapfile -t files < <(printf '%s\n' "${files[@]}" | sort -u)
    for name in "${files[@]}"; do options+=(-f "$name"); done
    [ "$guests" != two ] || options+=(-2)
    note "boot: $guests, $suite:$words"
    # In a process of its own, for another suite and its own cleanup; in the background, because bash handles signals only
    # while it waits.
    RDMA_VM_SUITE=$suite "$HERE/rdma-vm" run -t "$sum" -m "$memory" -r "$reports" "${options[@]}" -- \
        "exec run_scenarios $guests$words" &
    PROCESSES+=($!)
    wait $!
}

# read_result NAME REPORTS: takes the worst of the guests' lines `end NAME GUEST ok|FAILED|skipped SECONDS TEXT`.
read_result() {
    local expected=1 lines left
    [ "$(header "$1" guests)" != two ] || [ -n "$(header "$1" dies)" ] || expected=2
    lines=$(sed -n "s/^end $1 //p" "$2")
    if grep -m1 -q '^[12] FAILED' <<<"$lines"; then
        RESULT[$1]="FAILED  $(sed -nE 's/^([12]) FAILED ([0-9]+) (.*)/\2 s  guest \1: \3/p' <<<"$lines" | head -n1)"
    elif [ "$(grep -c '^[12] ' <<<"$lines")" -lt "$expected" ]; then
        RESULT[$1]="FAILED  a guest died or ran out of time"
    elif grep -q '^[12] skipped' <<<"$lines"; then
        REASON[$1]=$(sed -nE 's/^[12] skipped [0-9]+ //p' <<<"$lines" | head -n1)
    else
        left=$(sed -nE 's/^[12] ok [0-9]+ (.+)/\1/p' <<<"$lines" | head -n1)
        RESULT[$1]="ok      $(sed -nE 's/^[12] ok ([0-9]+).*/\1/p' <<<"$lines" | sort -n | tail -n1) s${left:+  $left}"
    fi
}

# summary STRICT NAME...: prints a line for each; returns 1 if any failed.
summary() {
    local strict=$1 name text failed=0 skipped=0
    shift
    echo
    echo "rdma-vm: Linux $(cat "$KERNEL/release"), rdma-core $(basename "$CACHE/debs/user"/librdmacm1_*.deb | cut -d_ -f2)"
    for name; do
        if [ -n "${REASON[$name]:-}" ]; then
            text="skipped ${REASON[$name]}"
            case ${REASON[$name]} in
                FAILED:*) text="FAILED  ${REASON[$name]#FAILED: }"; failed=$((failed + 1)) ;;
                *) skipped=$((skipped + 1)) ;;
            esac
        else
            text=${RESULT[$name]:-FAILED  no result}
            [[ $text = ok* ]] || failed=$((failed + 1))
        fi
        printf '  %-24s %s\n' "$name" "$text"
    done
    echo "rdma-vm: $# scenarios, $failed failed, $skipped skipped, $SECONDS s"
    [ "$failed" -eq 0 ] || return 1
    [ "$skipped" -eq 0 ] || [ "$strict" = 0 ] || return 1
}

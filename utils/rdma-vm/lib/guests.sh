# shellcheck shell=bash
# Starts, watches and ends guests.
#
# A guest has two serial ports. The first is its console, copied to standard output. The second is the control line, on
# which it sends requests (see control) and learns that the other guest has called meet. QEMU's monitor is a third
# pipe, for the cable. Two guests are connected by a pair of unix datagram sockets: nothing leaves this machine.

# KVM is used only on request: /dev/kvm also exists on machines on which it cannot run an unmodified kernel.
ACCEL=${RDMA_VM_ACCEL:-tcg,thread=multi}
CPU=${RDMA_VM_CPU:-max}
# no_timer_check: on a loaded host an emulated timer may be too late for the kernel's test of it, which ends in a panic.
KERNEL_LINE="console=ttyS0 quiet panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check"

# run [OPTIONS] -- CMD
run() {
    local files=() two=0 limit=300 cpus='' memory=512 reports=/dev/null option
    while getopts 2f:t:c:m:r: option; do
        case $option in
            2) two=1 ;;
            f) files+=("$OPTARG") ;;
            t) limit=$OPTARG ;;
            c) cpus=$OPTARG ;;
            m) memory=$OPTARG ;;
            r) reports=$(realpath -m "$OPTARG") ;;
            *) usage >&2; exit 2 ;;
        esac
    done
    shift $((OPTIND - 1))
    [ "${1:-}" != -- ] || shift
    [ $# -gt 0 ] || die "no command to run"
    build
    # More virtual processors than real ones make spinning programs very slow.
    [ -n "$cpus" ] || cpus=$((two ? 1 : 2))

    local work
    work=$(mktemp -d)
    SCRATCH+=("$work")
    pack_job "$work" "$*" ${files[@]+"${files[@]}"}
    start_guest 1
    [ "$two" = 0 ] || start_guest 2
    wait_for_guests
}

# exec PROGRAM ARG...: RUST_* and GPUNET_* go along.
exec_program() {
    [ $# -gt 0 ] || die "no program to run"
    local program=$1 line='' name
    shift
    for name in ${!RUST_@} ${!GPUNET_@}; do line+="export $name=$(printf %q "${!name}"); "; done
    line+="./$(basename "$program")"
    [ $# -eq 0 ] || line+=$(printf ' %q' "$@")
    run -f "$program" -t "${RDMA_VM_LIMIT:-300}" -- "$line"
}

# pack_job DIRECTORY CMD FILE...: the base and the job as one initial file system; the kernel unpacks one archive over the
# other.
pack_job() {
    local work=$1 root=$1/root entry source destination
    mkdir -p "$root/job"
    chmod 755 "$root" "$root/job"
    printf '%s\n' "$2" >"$root/job/.cmd"
    shift 2
    for entry; do
        source=${entry%%:*}
        destination=/job/$(basename "$source")
        [ "$entry" = "$source" ] || destination=${entry#*:}
        [ -e "$source" ] || die "there is no $source"
        mkdir -p "$root/$(dirname "$destination")"
        cp -LR "$source" "$root/$destination"
        if [ -f "$source" ] && [ "$(head -c4 "$source" | tail -c3)" = ELF ]; then copy_libraries "$root" "$source"; fi
    done
    cp "$KERNEL/base.cpio.gz" "$work/initrd"
    truncate -s %4 "$work/initrd"
    archive "$root" >>"$work/initrd"
}

# The caller's variables (work, two, limit, cpus, memory, reports) are those of run. Indexed by the guest's number:
GUEST=() CONSOLE=() CONTROL=()

# start_guest N
start_guest() {
    local n=$1 other=$((3 - $1)) mtu=${RDMA_VM_MTU:-9000} network=() prefix='' monitor
    local qemu=("${RDMA_VM_QEMU:-}")
    [ -n "${qemu[0]}" ] || qemu=(env "LD_LIBRARY_PATH=$QEMU/lib" "$QEMU/qemu-system-x86_64" -L "$QEMU/share")
    if [ "$two" = 1 ]; then
        prefix="$n| "
        network=(-netdev "dgram,id=n0,local.type=unix,local.path=$work/net$n,remote.type=unix,remote.path=$work/net$other"
            -device "virtio-net-pci,id=nic0,netdev=n0,mac=52:54:00:00:00:0$n,host_mtu=$mtu,romfile=")
    fi
    mkfifo "$work/console$n" "$work/control$n.in" "$work/control$n.out" "$work/monitor$n.in" "$work/monitor$n.out"
    # Kept open, so that QEMU sees no end of its input.
    # shellcheck disable=SC2034
    exec {monitor}<>"$work/monitor$n.in"
    { : >"$work/opened$n"; sed -u "s/\\r\$//; s/^/$prefix/"; } <"$work/console$n" &
    CONSOLE[n]=$!
    # shellcheck disable=SC2086
    timeout -k 5 "$limit" "${qemu[@]}" -nodefaults -no-user-config -display none -no-reboot \
        -accel "$ACCEL" -cpu "$CPU" -smp "$cpus" -m "$memory" \
        -kernel "$KERNEL/vmlinuz" -initrd "$work/initrd" \
        -append "$KERNEL_LINE vm.HOST=$n vm.TWO=$two vm.MTU=$mtu ${RDMA_VM_APPEND:-}" \
        -chardev "file,id=console,path=$work/console$n" -serial chardev:console \
        -chardev "pipe,id=control,path=$work/control$n" -serial chardev:control \
        -chardev "pipe,id=monitor,path=$work/monitor$n" -mon chardev=monitor,mode=readline \
        ${network[@]+"${network[@]}"} ${RDMA_VM_QEMU_ARGS:-} </dev/null &
    GUEST[n]=$!
    control "$n" "${GUEST[$n]}" <"$work/control$n.out" &
    CONTROL[n]=$!
    PROCESSES+=("${GUEST[$n]}" "${CONSOLE[$n]}" "${CONTROL[$n]}")
}

# control N PROCESS: serves the requests of guest N on its control line.
control() {
    local n=$1 line meeting
    declare -A meetings=()
    while IFS= read -r line; do
        line=${line%$'\r'}
        case $line in
            "exit "*) echo "${line#exit }" >"$work/code$n" ;;
            "say "*) note "guest $n: ${line#say }" ;;
            "report "*) echo "${line#report }" >>"$reports" ;;
            "link "*) echo "set_link nic0 ${line#link }" >"$work/monitor$n.in" ;;
            kill)
                : >"$work/killed$n"
                kill "$2"
                ;;
            "meet "*)
                meeting=${line#meet }
                meetings[$meeting]=$((${meetings[$meeting]:-0} + 1))
                met "$n" "$meeting.${meetings[$meeting]}" &
                ;;
        esac
    done
}

# met N MEETING: a meeting is a name and a count of calls; tells guest N when the other one is there too, while both live.
met() {
    : >"$work/meeting$1.$2"
    until [ -e "$work/meeting$((3 - $1)).$2" ]; do
        [ -d "$work" ] && [ ! -e "$work/ended$1" ] || return 0
        sleep 0.05
    done
    echo go >"$work/control$1.in"
}

# Waits for all guests; returns the first exit code that is not 0.
wait_for_guests() {
    local left=(1) n code result=0 alive
    [ "$two" = 0 ] || left=(1 2)
    while [ "${#left[@]}" -gt 0 ]; do
        sleep 0.1
        alive=()
        for n in "${left[@]}"; do
            if kill -0 "${GUEST[$n]}" 2>/dev/null; then
                alive+=("$n")
                continue
            fi
            code=0
            reap_guest "$n" || code=$?
            [ "$result" -ne 0 ] || result=$code
            # The other one would wait for a dead peer.
            if [ "$code" -eq "$EXIT_DIED" ] && [ "$two" = 1 ]; then kill "${GUEST[3 - n]}" 2>/dev/null || :; fi
        done
        left=(${alive[@]+"${alive[@]}"})
    done
    return "$result"
}

# reap_guest N: returns its exit code.
reap_guest() {
    local n=$1 code=0
    wait "${GUEST[$n]}" || code=$?
    : >"$work/ended$n"
    # Console and control line end with QEMU, unless it failed before it opened them.
    if [ ! -e "$work/opened$n" ]; then kill "${CONSOLE[$n]}" "${CONTROL[$n]}" 2>/dev/null || :; fi
    wait "${CONSOLE[$n]}" "${CONTROL[$n]}" 2>/dev/null || :
    if [ -e "$work/code$n" ]; then return "$(cat "$work/code$n")"; fi
    if [ -e "$work/killed$n" ]; then return 0; fi
    if [ "$code" -eq "$EXIT_TIME" ]; then
        note "guest $n: no end within $limit s"
        return "$EXIT_TIME"
    fi
    note "guest $n left no exit code (QEMU: $code)"
    return "$EXIT_DIED"
}

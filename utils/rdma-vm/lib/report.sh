# shellcheck shell=bash
# The report of gpunet-bench on a guest: rc over its software RDMA device, beside TCP, rstream and perftest.

# What is measured unless --only names others: in emulation, the other figures say nothing of gpunet.
REPORTED=latency-rc,bandwidth-rc,latency,bandwidth
# Emulated processors need this many times the time that gpunet-bench allows.
SLOWDOWN=12

# report --out FILE [OPTION...]: runs the release build in a guest and takes the file from it. The options are those of
# `gpunet-bench report`. If FILE is there, the guest goes on with it.
report() {
    local out='' given=() line only="--only $REPORTED" slowdown="--slowdown $SLOWDOWN" again=0 word
    while [ $# -gt 0 ]; do
        case $1 in
            --out)
                [ $# -ge 2 ] || die "report: --out needs a file"
                out=$2
                shift
                ;;
            --out=*) out=${1#--out=} ;;
            --address | --address=*) die "report: the guest's address is the one of its RDMA device" ;;
            *)
                given+=("$1")
                case $1 in
                    --only | --only=*) only='' ;;
                    --slowdown | --slowdown=*) slowdown='' ;;
                    --again) again=1 ;;
                esac
                ;;
        esac
        shift
    done
    [ -n "$out" ] || die "report: --out FILE.json names the file"
    out=$(realpath -m "$out")
    [ -w "$(dirname "$out")" ] || die "report: cannot write into $(dirname "$out")"
    build
    need_file gpunet-bench
    [ -z "${LACKS[gpunet-bench]:-}" ] || die "report: ${LACKS[gpunet-bench]}"

    local files=(-f "${FILE_OF[gpunet-bench]}") lines code=0
    if [ -e "$out" ] && [ "$again" = 0 ]; then files+=(-f "$out:/job/report.json"); fi
    line="./gpunet-bench --device cpu report --out report.json --address \$ME $slowdown $only"
    for word in ${given[@]+"${given[@]}"}; do line+=" $(printf %q "$word")"; done
    # What is measured by then is not lost if the guest ends early.
    line="(while sleep 30; do send_report report.json; done) & sender=\$!; $line"
    line+='; code=$?; kill $sender; send_report report.json; exit $code'
    scratch_dir lines
    # In a process of its own, as for scenarios.
    "$HERE/rdma-vm" run -t "${RDMA_VM_LIMIT:-5400}" -m 1024 -r "$lines/lines" "${files[@]}" -- "$line" &
    PROCESSES+=($!)
    wait $! || code=$?
    last_sent "$lines/lines" | base64 -d | gzip -dc >"$lines/report" 2>/dev/null || :
    if [ ! -s "$lines/report" ]; then
        note "report: the guest left none (exit code $code)"
        [ "$code" -ne 0 ] || code=$EXIT_DIED
        exit "$code"
    fi
    cp "$lines/report" "$out"
    exit "$code"
}

# last_sent LINES: the last report that the guest has sent as a whole.
last_sent() {
    [ ! -e "$1" ] || awk '$1 != "json" { next } $2 == "begin" { sent = "" } $2 == "end" { whole = sent }
        NF == 2 && $2 != "begin" && $2 != "end" { sent = sent $2 "\n" } END { printf "%s", whole }' "$1"
}

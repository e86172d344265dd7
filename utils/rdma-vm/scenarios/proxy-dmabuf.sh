# Rings of rc streams in a dma-buf: the device refuses them and host memory serves; with the shim it takes them.
# in: full
# guests: one
# kernel: bookworm-backports
# needs: module:dmabuf_shim dmabuf-shim gpunet-echo test:gpunet-proxy:conformance
# limit: 200
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
SHIM=LD_PRELOAD=/job/shim/dmabuf_preload.so
demo() {
    name=$1
    shift
    # shellcheck disable=SC2086
    run "$name" 60 env GPUNET_LOG=warn "$@" $ECHO $ECHO_OPTIONS --placement dma-buf --listen "$ME" \
        --size 64,64K --count 50 --connections 2 --json
    check_report "/tmp/$name.log"
}
mark rxe0
demo refused NONE=
says /tmp/refused.log "rings in host memory" || fail "the refusal of dma-bufs is not told"
demo taken $SHIM
! says /tmp/taken.log "rings in host memory" || fail "the shim's dma-bufs were refused"
run conformance 120 env $SHIM GPUNET_RC_ADDR="$ME" /job/gpunet-proxy-conformance rc_device_rings
tail -n 2 /tmp/conformance.log
carried rxe0 100000

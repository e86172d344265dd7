# dma-buf memory regions on rxe, by the shim: of a udmabuf and of the dma-heap.
# in: full
# guests: one
# kernel: bookworm-backports
# needs: module:dmabuf_shim dmabuf-shim
# limit: 30
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
before=$(resources rxe0)
run without 10 /job/shim/dmabuf_check rxe0 unsupported
run with 10 env LD_PRELOAD=/job/shim/dmabuf_preload.so /job/shim/dmabuf_check rxe0 works
cat /tmp/with.log
resources_back rxe0 "$before" 5

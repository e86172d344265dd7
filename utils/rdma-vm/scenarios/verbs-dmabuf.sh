# The verbs conformance tests of gpunet-core with the buffers in a dma-buf, by the shim.
# in: full
# guests: one
# kernel: bookworm-backports
# needs: module:dmabuf_shim dmabuf-shim test:gpunet-core:verbs
# limit: 120
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
run verbs 110 env LD_PRELOAD=/job/shim/dmabuf_preload.so GPUNET_RDMA_DMABUF=1 GPUNET_RDMA_ADDR="$ME" /job/gpunet-core-verbs
tail -n 5 /tmp/verbs.log
# A test of a real device that finds none says so and passes.
! grep "NOT RUN" /tmp/verbs.log || fail "some tests were not run"

# The verbs tests of gpunet-core on rxe.
# in: quick
# guests: one
# needs: test:gpunet-core:verbs test:gpunet-core:verbs_rdma
# limit: 240
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
run verbs 110 env GPUNET_RDMA_ADDR="$ME" /job/gpunet-core-verbs
run verbs_rdma 110 env GPUNET_RDMA_ADDRESS="$ME" /job/gpunet-core-verbs_rdma --nocapture
tail -n 5 /tmp/verbs.log /tmp/verbs_rdma.log
# Tests of a real device that find none say so and pass.
! grep 'NOT RUN' /tmp/verbs.log /tmp/verbs_rdma.log || fail "some tests were not run"

# The verbs conformance tests of gpunet-core on rxe.
# in: quick
# guests: one
# needs: test:gpunet-core:verbs
# limit: 120
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
run verbs 110 env GPUNET_RDMA_ADDR="$ME" /job/gpunet-core-verbs
tail -n 5 /tmp/verbs.log

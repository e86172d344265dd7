# Queues of host programs over rc: every byte, and the work requests that the device counts.
# in: quick
# guests: one
# needs: test:gpunet-proxy:queue_counts
# limit: 120
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
run counts 110 env GPUNET_RC_ADDR="$ME" /job/gpunet-proxy-queue_counts
cat /tmp/counts.log
! grep 'NOT RUN' /tmp/counts.log || fail "some tests were not run"
# Without these, counts of a simulated network would pass.
says /tmp/counts.log "counted by .*/rxe0/" || fail "the device has counted nothing"
carried rxe0 1000000
no_rnr rxe0

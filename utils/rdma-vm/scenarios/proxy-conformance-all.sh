# The socket conformance tests of gpunet-proxy over rc, by groups of every size.
# in: full
# guests: one
# needs: test:gpunet-proxy:conformance
# limit: 500
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
run conformance 490 env GPUNET_RC_ADDR="$ME" /job/gpunet-proxy-conformance rc_
tail -n 5 /tmp/conformance.log
# Without this, tests that quietly took another transport would pass.
carried rxe0 100000

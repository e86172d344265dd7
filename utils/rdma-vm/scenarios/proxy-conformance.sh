# The socket conformance tests of gpunet-proxy over rc, by groups of two lanes, and with rings in the device's memory: those over
# other transports learn nothing here, and those by groups of other sizes little (proxy-conformance-all).
# in: quick
# guests: one
# needs: test:gpunet-proxy:conformance
# limit: 500
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
run conformance 490 env GPUNET_RC_ADDR="$ME" /job/gpunet-proxy-conformance rc_2_lanes rc_device_rings
tail -n 5 /tmp/conformance.log
# Without this, tests that quietly took another transport would pass.
carried rxe0 100000

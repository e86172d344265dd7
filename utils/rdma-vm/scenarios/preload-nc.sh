# nc.traditional on the rsocket preload library as the client of gpunet-echo.
# in: quick
# guests: namespaces
# needs: gpunet-echo
# limit: 60
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
# Fits into the buffers between the two: nc does not read while it is blocked in a write.
head -c 100000 /dev/urandom >/tmp/sent
echo_server_b
no_tcp_port $ECHO_PORT
mark ra rb
# It ends when the server's end of stream comes, or 5 s after its own.
timeout 30 ip netns exec a env LD_PRELOAD=$PRELOAD nc.traditional -q 5 $IP_B $ECHO_PORT </tmp/sent >/tmp/received 2>/tmp/nc.log ||
    fail "nc: exit code $?"
cmp /tmp/sent /tmp/received || fail "$(wc -c </tmp/received) bytes came back, or others than were sent"
carried ra 100000
carried rb 100000
no_rnr ra rb
stops "$server"

# iperf 2 on the rsocket preload library as the client of gpunet-echo.
# in: quick
# guests: namespaces
# needs: gpunet-echo
# limit: 60
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
echo_server_b
no_tcp_port $ECHO_PORT
mark ra rb
# It never reads what is echoed, so all of it has to fit into the buffers on the way.
run iperf 30 at_a env LD_PRELOAD=$PRELOAD iperf -c $IP_B -p $ECHO_PORT -n 96K -l 8K
says /tmp/iperf.log 'sec .*Bytes' || fail "iperf tells no result"
carried ra 98304
no_rnr ra rb
# The server is none the worse for it.
# shellcheck disable=SC2086
run echo-client 30 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 1K --count 10 --connections 1 --json
check_report /tmp/echo-client.log
stops "$server"

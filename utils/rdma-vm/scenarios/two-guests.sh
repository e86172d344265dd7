# gpunet-echo and rstream, in both directions, between two machines.
# in: full
# guests: two
# needs: gpunet-echo gpunet-rstream
# limit: 150
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
if is_server; then
    # shellcheck disable=SC2086
    start_server echo-server $ECHO server "$ME:$ECHO_PORT" $ECHO_OPTIONS
    echo_server=$server
    # shellcheck disable=SC2086
    start_server rstream-server $RSTREAM server "$ME:$RSTREAM_PORT" $RSTREAM_OPTIONS --size 65536 --count 20 --iterations 2 --verify
    rstream_server=$server
    meet
    ended_well "$rstream_server" 90 "gpunet-rstream server"
    start_peer rstream-peer $RSTREAM_PORT rstream -b "$ME" -S 65536 -C 20 -I 2 -T v
    meet
    ended_well "$server" 60 "the rstream server"
    meet
    carried rxe0 6000000
    stops "$echo_server"
else
    meet
    # shellcheck disable=SC2086
    run echo-client 60 $ECHO client "$PEER:$ECHO_PORT" $ECHO_OPTIONS --size 64K --count 10 --connections 2 --json
    check_report /tmp/echo-client.log
    run rstream-client 40 rstream -s "$PEER" -S 65536 -C 20 -I 2 -T v
    meet
    # shellcheck disable=SC2086
    run rstream-gpunet 40 $RSTREAM client "$PEER:$RSTREAM_PORT" $RSTREAM_OPTIONS --size 65536 --count 20 --iterations 2 --verify
    meet
    carried rxe0 6000000
fi
no_rnr rxe0

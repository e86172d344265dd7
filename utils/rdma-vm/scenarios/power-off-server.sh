# The server's machine loses power: the client ends with an error.
# in: full
# guests: two
# needs: gpunet-echo
# boot: own
# dies: 2
# limit: 120
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
if is_server; then
    # shellcheck disable=SC2086
    start_server echo-server $ECHO server "$ME:$ECHO_PORT" $ECHO_OPTIONS
    meet
    sleep 5
    hostctl kill
    sleep 60
fi
before=$(resources rxe0)
meet
# shellcheck disable=SC2086
start echo-client $ECHO client "$PEER:$ECHO_PORT" $ECHO_OPTIONS --size 64K --count 1000000 --connections 2
sleep 3
is_running "$started" || fail "the client ended while the server lived"
ended_with_error "$started" 60 "the client" /tmp/echo-client.log
resources_back rxe0 "$before" 20

# The client's machine loses power: the server frees the connections and keeps listening.
# in: full
# guests: two
# needs: gpunet-echo
# boot: own
# dies: 2
# limit: 150
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
if is_server; then # here it is the client
    meet
    warm_up "$PEER:$ECHO_PORT"
    meet
    meet
    # shellcheck disable=SC2086
    start echo-client $ECHO client "$PEER:$ECHO_PORT" $ECHO_OPTIONS --size 64K --count 1000000 --connections 2
    sleep 5
    hostctl kill
    sleep 60
fi
# shellcheck disable=SC2086
start_server echo-server $ECHO server "$ME:$ECHO_PORT" $ECHO_OPTIONS
meet
meet
before=$(resources rxe0)
meet
sleep 3
[ "$(resources rxe0)" != "$before" ] || fail "there was no connection to break"
resources_back rxe0 "$before" 90
# shellcheck disable=SC2086
run own-client 30 $ECHO client "$ME:$ECHO_PORT" $ECHO_OPTIONS --size 16K --count 10 --connections 1 --json
check_report /tmp/own-client.log
stops "$server"

# The cable is pulled for good: both sides notice, report it and free everything.
# in: full
# guests: two
# needs: gpunet-echo
# limit: 150
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
before=$(resources rxe0)
if is_server; then
    # shellcheck disable=SC2086
    start_server echo-server $ECHO server "$ME:$ECHO_PORT" $ECHO_OPTIONS
    meet
    meet
    listening=$(resources rxe0)
    meet
    sleep 4
    [ "$(resources rxe0)" != "$listening" ] || fail "there was no connection to break"
    hostctl "link off"
    resources_back rxe0 "$listening" 60
    meet
    stops "$server"
    hostctl "link on"
else
    meet
    warm_up "$PEER:$ECHO_PORT"
    meet
    meet
    # shellcheck disable=SC2086
    start echo-client $ECHO client "$PEER:$ECHO_PORT" $ECHO_OPTIONS --size 64K --count 1000000 --connections 2
    ended_with_error "$started" 60 "the client" /tmp/echo-client.log
    meet
fi
resources_back rxe0 "$before" 20
meet

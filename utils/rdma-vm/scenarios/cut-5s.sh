# The cable is pulled for five seconds: the stream goes on or ends with an error, and the next one works.
# in: full
# guests: two
# needs: gpunet-echo
# limit: 150
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
if is_server; then
    # shellcheck disable=SC2086
    start_server echo-server $ECHO server "$ME:$ECHO_PORT" $ECHO_OPTIONS
    meet
    meet
    before=$(resources rxe0)
    meet
    sleep 4
    [ "$(resources rxe0)" != "$before" ] || fail "there was no connection to break"
    hostctl "link off"
    sleep 5
    hostctl "link on"
    meet
    meet
    is_running "$server" || fail "the server ended"
    resources_back rxe0 "$before" 60
    stops "$server"
else
    meet
    warm_up "$PEER:$ECHO_PORT"
    meet
    meet
    # Some 15 s long.
    # shellcheck disable=SC2086
    start echo-client $ECHO client "$PEER:$ECHO_PORT" $ECHO_OPTIONS --size 64K --count 1000 --connections 1 --json
    client=$started
    meet
    ended "$client" 100 "the client"
    if [ "$code" -eq 0 ]; then
        check_report /tmp/echo-client.log
        say_step "the stream survived"
    else
        # rxe fails at once when its own cable is cut, and then there is nothing to go on with.
        { [ "$code" -ne 101 ] && [ "$code" -lt 128 ]; } || fail "the client: panic or signal, exit code $code"
        says /tmp/echo-client.log "timed out\|reset" || fail "the client ended with exit code $code and no reason"
        say_step "the stream ended with exit code $code"
    fi
    # shellcheck disable=SC2086
    run second-client 30 $ECHO client "$PEER:$ECHO_PORT" $ECHO_OPTIONS --size 16K --count 10 --connections 1 --json
    check_report /tmp/second-client.log
    meet
fi

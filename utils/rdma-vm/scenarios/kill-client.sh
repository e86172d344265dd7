# The client is killed in mid-stream: the server notices, frees everything and serves on.
# in: full
# guests: namespaces
# needs: gpunet-echo
# limit: 120
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
echo_server_b
warm_up at_a $IP_B:$ECHO_PORT
before=$(resources rb)
# shellcheck disable=SC2086
start victim at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64K --count 1000000 --connections 2
sleep 4
is_running "$started" || fail "the client ended before it was killed"
[ "$(resources rb)" != "$before" ] || fail "there was no connection to break"
kill -9 "$started"
resources_back rb "$before" 20
# shellcheck disable=SC2086
run echo-client 30 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 16K --count 10 --connections 2 --json
check_report /tmp/echo-client.log
resources_back rb "$before" 20
stops "$server"

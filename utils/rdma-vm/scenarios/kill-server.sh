# The server is killed in mid-stream: the client soon ends with an error.
# in: full
# guests: namespaces
# needs: gpunet-echo
# limit: 90
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
before_a=$(resources ra)
before_b=$(resources rb)
echo_server_b
# shellcheck disable=SC2086
start echo-client at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64K --count 1000000 --connections 2
sleep 4
is_running "$started" || fail "the client ended before the server was killed"
kill -9 "$server"
ended_with_error "$started" 20 "the client" /tmp/echo-client.log
resources_back ra "$before_a" 20
resources_back rb "$before_b" 20

# A thousand connections, after which everything they took is given back.
# in: full
# guests: namespaces
# needs: gpunet-echo
# memory: 3072
# limit: 420
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
before_a=$(resources ra)
without_server=$(resources rb)
echo_server_b
# The server keeps the registrations of as many rings as there were connections at a time: first let it have them all.
# shellcheck disable=SC2086
run first 90 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64 --count 40 --connections 100 --blocks 50 --json
sleep 3
before_b=$(resources rb)
# shellcheck disable=SC2086
run thousand 300 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64 --count 4 --connections 1000 --blocks 50 --json
check_report /tmp/thousand.log
says /tmp/thousand.log '"connections": *1000[,}]' || fail "not a thousand connections"
resources_back rb "$before_b" 20
resources_back ra "$before_a" 20
stops "$server"
resources_back rb "$without_server" 5

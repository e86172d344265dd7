# A thousand connections, after which everything they used is freed.
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
# The first connection may make what all share.
warm_up at_a $IP_B:$ECHO_PORT
before_b=$(queues rb)
# shellcheck disable=SC2086
run thousand 300 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64 --count 4 --connections 1000 --blocks 50 --json
check_report /tmp/thousand.log
says /tmp/thousand.log '"connections": *1000[,}]' || fail "not a thousand connections"
until_true 20 has_queues rb "$before_b" || fail "rb has $(queues rb)after 20 s, where it had $before_b before"
# The server keeps the registrations, 3 a connection, of as many as there were at a time: 50, and those being closed. A leak
# would be of 3000.
kept=$(amount rb mr)
[ "$kept" -le 450 ] || fail "$kept memory regions are kept after 50 connections at a time"
say_step "rb has $(resources rb)"
resources_back ra "$before_a" 20
stops "$server"
resources_back rb "$without_server" 5

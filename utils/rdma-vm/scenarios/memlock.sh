# The limit of locked memory is too low: an error that says so, no hang, no panic.
# in: full
# guests: namespaces
# needs: gpunet-echo
# limit: 60
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
# Not as root: with CAP_IPC_LOCK the kernel asks for no limit.
echo_server_b
warm_up at_a $IP_B:$ECHO_PORT
before=$(resources rb)
# shellcheck disable=SC2086
start echo-client at_a chroot --userspec=65534:65534 / sh -c 'ulimit -l 64; exec "$@"' - $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 1K --count 10 --connections 1
ended_with_error "$started" 20 "the client" /tmp/echo-client.log
grep -qE 'RLIMIT_MEMLOCK|ulimit -l|locked.memory' /tmp/echo-client.log || fail "the error says nothing of locked memory"
resources_back rb "$before" 10
stops "$server"

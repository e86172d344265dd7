# gpunet-echo, server and client, over rc.
# in: quick
# guests: namespaces
# needs: gpunet-echo
# limit: 90
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
echo_server_b
mark ra rb
# shellcheck disable=SC2086
run echo-client 60 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64,16K,256K --count 20 --connections 2 --json
check_report /tmp/echo-client.log
# 2 connections x 20 x (64 + 16 K + 256 K)
carried ra 11000000
carried rb 11000000
no_rnr ra rb
stops "$server"

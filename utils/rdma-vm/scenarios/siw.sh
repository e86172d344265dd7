# siw, which is iWARP, in place of rxe: gpunet with itself and with rstream, in both directions.
# in: full
# guests: one
# kernel: bookworm-backports
# needs: module:siw gpunet-echo gpunet-rstream
# limit: 150
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
siw_for_rxe
# shellcheck disable=SC2086
start_server echo-server $ECHO server "$ME:$ECHO_PORT" $ECHO_OPTIONS
echo_server=$server
# shellcheck disable=SC2086
run echo-client 40 $ECHO client "$ME:$ECHO_PORT" $ECHO_OPTIONS --size 64,64K --count 10 --connections 2 --json
check_report /tmp/echo-client.log
stops "$echo_server"

# shellcheck disable=SC2086
start_server rstream-server $RSTREAM server "$ME:$RSTREAM_PORT" $RSTREAM_OPTIONS --size 65536 --count 20 --iterations 2 --verify
rstream_server=$server
run rstream-client 30 rstream -s "$ME" -S 65536 -C 20 -I 2 -T v
ended_well "$rstream_server" 10 "gpunet-rstream server"

start_peer rstream-peer $RSTREAM_PORT rstream -b "$ME" -S 65536 -C 20 -I 2 -T v
rstream_server=$server
# shellcheck disable=SC2086
run rstream-gpunet 30 $RSTREAM client "$ME:$RSTREAM_PORT" $RSTREAM_OPTIONS --size 65536 --count 20 --iterations 2 --verify
ended_well "$rstream_server" 10 "the rstream server"
rxe_for_siw

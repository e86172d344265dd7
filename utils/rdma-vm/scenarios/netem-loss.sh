# One and five percent of packets are lost: slower, and every byte intact.
# in: full
# guests: namespaces
# needs: gpunet-echo gpunet-rstream
# limit: 300
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
lossy() { # PERCENT; each side loses what it sends
    at_a tc qdisc replace dev va root netem loss "$1%"
    at_b tc qdisc replace dev vb root netem loss "$1%"
}
for percent in 1 5; do
    lossy 0
    echo_server_b
    start_peer rstream $RSTREAM_PORT at_b rstream -b $IP_B -S 65536 -C 20 -I 2 -T v
    rstream_server=$server
    mark ra rb
    lossy $percent
    # shellcheck disable=SC2086
    run "echo-$percent" 100 at_a $ECHO client $IP_B:$ECHO_PORT $ECHO_OPTIONS --size 64K --count 20 --connections 2 --json
    check_report "/tmp/echo-$percent.log"
    # shellcheck disable=SC2086
    run "rstream-$percent" 100 at_a $RSTREAM client $IP_B:$RSTREAM_PORT $RSTREAM_OPTIONS --size 65536 --count 20 --iterations 2 --verify
    ended_well "$rstream_server" 20 "the rstream server"
    # rxe asks again for what is missing; if it never did, nothing was lost and nothing was tested.
    lost=$(($(grew ra out_of_seq_request) + $(grew rb out_of_seq_request) + $(grew ra rcvd_seq_err) + $(grew rb rcvd_seq_err)))
    [ $lost -gt 0 ] || fail "no packet was lost at $percent %"
    say_step "$percent %: $lost sequence errors"
    lossy 0
    kill -9 "$(pidof gpunet-echo)" 2>/dev/null
    sleep 1
done

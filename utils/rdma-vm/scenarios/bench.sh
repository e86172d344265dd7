# gpunet beside rstream, rconnect and perftest, in one run. Emulation distorts all of it, and nothing is asserted.
# in: full
# guests: namespaces
# needs: gpunet-rstream example:gpunet-proxy:rc_connect
# limit: 300
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
pair() { # pair SIZE COUNT ITERATIONS: rstream with rstream, then gpunet-rstream with gpunet-rstream
    echo "-- $1 bytes, $2 transfers, $3 iterations: rstream, gpunet-rstream"
    start_peer rstream $RSTREAM_PORT at_b rstream -b $IP_B -S "$1" -C "$2" -I "$3"
    run rstream-client 60 at_a rstream -s $IP_B -S "$1" -C "$2" -I "$3"
    grep custom /tmp/rstream-client.log
    ended_well "$server" 10 rstream
    # shellcheck disable=SC2086
    start_server gpunet at_b $RSTREAM server $IP_B:$RSTREAM_PORT $RSTREAM_OPTIONS --size "$1" --count "$2" --iterations "$3"
    # shellcheck disable=SC2086
    run gpunet-client 60 at_a $RSTREAM client $IP_B:$RSTREAM_PORT $RSTREAM_OPTIONS --size "$1" --count "$2" --iterations "$3"
    grep custom /tmp/gpunet-client.log
    ended_well "$server" 10 gpunet
}
for round in 1 2 3; do
    echo "== round $round"
    pair 64 1 500
    pair 65536 256 1
    pair 1048576 16 1
done
perftest() { # perftest PROGRAM OPTIONS...: its table. In emulation these programs crash now and then.
    for _ in 1 2 3; do
        start "$1-server" at_b "$@" -F -R -d rb
        server=$started
        sleep 1
        start "$1" at_a "$@" -F -R -d ra $IP_B
        ended "$started" 30 "$1"
        if [ "$code" -eq 0 ]; then
            grep -A1 '#bytes' "/tmp/$1.log"
            return
        fi
        client=$code
        kill -9 "$server" 2>/dev/null
        ended "$server" 10 "the server of $1"
        # 137: it was still there to be killed.
        [ "$client" -ge 128 ] || { [ "$code" -ge 128 ] && [ "$code" -ne 137 ]; } || fail "$1: exit code $client"
        say_step "$1 crashed (exit codes $client and $code) and is tried again"
    done
    left_out "$1: it crashed three times"
}
perftest ib_write_lat -s 64 -n 500
perftest ib_write_bw -s 65536 -n 300
start_server listen at_b /job/gpunet-proxy-rc_connect listen $IP_B:7473
run connect 120 at_a /job/gpunet-proxy-rc_connect $IP_B:7473 30
cat /tmp/connect.log

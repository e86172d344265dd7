# An unmodified rstream -T v as the client of gpunet-rstream.
# in: quick
# guests: namespaces
# needs: gpunet-rstream
# limit: 90
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
once() { # SIZE COUNT ITERATIONS
    # shellcheck disable=SC2086
    start_server "server-$1" at_b $RSTREAM server $IP_B:$RSTREAM_PORT $RSTREAM_OPTIONS --size "$1" --count "$2" --iterations "$3" --verify
    server_process=$server
    run "rstream-$1" 30 at_a rstream -s $IP_B -S "$1" -C "$2" -I "$3" -T v
    ended_well "$server_process" 10 "gpunet-rstream server"
}
mark ra rb
once 64 1 100
once 65536 40 2
once 1000000 2 2
carried ra 9200000
carried rb 9200000
no_rnr ra rb

# gpunet-rstream as the client of an unmodified rstream -T v.
# in: quick
# guests: namespaces
# needs: gpunet-rstream
# limit: 90
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
once() { # SIZE COUNT ITERATIONS
    start_peer "rstream-$1" $RSTREAM_PORT at_b rstream -b $IP_B -S "$1" -C "$2" -I "$3" -T v
    server_process=$server
    # shellcheck disable=SC2086
    run "client-$1" 30 at_a $RSTREAM client $IP_B:$RSTREAM_PORT $RSTREAM_OPTIONS --size "$1" --count "$2" --iterations "$3" --verify
    ended_well "$server_process" 10 "the rstream server"
}
mark ra rb
once 64 1 100
once 65536 40 2
once 1000000 2 2
carried ra 9200000
carried rb 9200000
no_rnr ra rb

# Either side's process is stopped again and again in mid-stream: the stream ends correctly and in time.
# in: full
# guests: namespaces
# needs: gpunet-rstream
# limit: 240
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
# A stopped process posts no receives, while its network card, which is the kernel, answers on. If the other side sends
# more than was promised, receivers are "not ready" for 655 ms each time; it must neither break nor crawl.
jolt() { # PROCESS
    for _ in 1 2 3 4 5; do
        is_running "$1" || return 0
        kill -STOP "$1"
        sleep 0.8
        kill -CONT "$1"
        sleep 0.3
    done
}
# round NAME SIZE COUNT WHO: small messages use up credits, large ones buffers; WHO is stopped
round() {
    name=$1 size=$2 count=$3 who=$4
    mark ra rb
    start_peer "rstream-$name" $RSTREAM_PORT at_b rstream -b $IP_B -S "$size" -C "$count" -I 2 -T v
    rstream_server=$server
    # shellcheck disable=SC2086
    start "gpunet-$name" at_a $RSTREAM client $IP_B:$RSTREAM_PORT $RSTREAM_OPTIONS --size "$size" --count "$count" --iterations 2 --verify
    client=$started
    sleep 0.5
    if [ "$who" = client ]; then jolt "$client"; else jolt "$rstream_server"; fi
    ended_well "$client" 60 "gpunet-rstream, with the $who stopped now and then"
    ended_well "$rstream_server" 10 "the rstream server"
    say_step "$name: RNR sent by ra $(grew ra send_rnr_err), by rb $(grew rb send_rnr_err)"
}
round large-client 65536 600 client
round large-server 65536 600 server
round small-client 64 10000 client
round small-server 64 10000 server

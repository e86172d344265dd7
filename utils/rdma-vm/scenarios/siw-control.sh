# rstream against itself over siw: is the machine fit for the siw scenario?
# in: full
# guests: two
# kernel: bookworm-backports
# needs: module:siw
# limit: 60
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
rdma link del rxe0
rdma link add siw0 type siw netdev eth0 || fail "no siw"
if is_server; then
    start_peer rstream-server $RSTREAM_PORT rstream -b "$ME" -S 65536 -C 20 -I 2 -T v
    meet
    ended_well "$server" 40 "the rstream server"
else
    meet
    run rstream-client 40 rstream -s "$PEER" -S 65536 -C 20 -I 2 -T v
fi
rdma link del siw0
rdma link add rxe0 type rxe netdev eth0

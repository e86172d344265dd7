# rstream against itself over siw: can this machine run the siw scenario?
# in: full
# guests: one
# kernel: bookworm-backports
# needs: module:siw
# limit: 60
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
siw_for_rxe
# One guest: between two, rstream now and then does not come to its end over siw.
start_peer rstream-server $RSTREAM_PORT rstream -b "$ME" -S 65536 -C 20 -I 2 -T v
server_process=$server
run rstream-client 20 rstream -s "$ME" -S 65536 -C 20 -I 2 -T v
ended_well "$server_process" 10 "the rstream server"
rxe_for_siw

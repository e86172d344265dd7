# rstream and rping against themselves: can this machine run the other scenarios?
# in: quick
# guests: namespaces
# limit: 60
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh

mark ra rb
start_peer rstream-server $RSTREAM_PORT at_b rstream -b $IP_B -S 65536 -C 40 -I 2 -T v
server_process=$server
run rstream-client 30 at_a rstream -s $IP_B -S 65536 -C 40 -I 2 -T v
ended_well "$server_process" 10 "the rstream server"
carried ra 5242880
carried rb 5242880
no_rnr ra rb

start_peer rping-server $RSTREAM_PORT at_b rping -s -a $IP_B -p $RSTREAM_PORT -C 20
server_process=$server
run rping-client 20 at_a rping -c -a $IP_B -p $RSTREAM_PORT -C 20
ended_well "$server_process" 10 "the rping server"

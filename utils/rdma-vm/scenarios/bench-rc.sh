# gpunet-bench over rc finds its peers, rstream and ib_write_lat, and measures beside them. Figures are not asserted.
# in: quick
# guests: one
# needs: gpunet-bench
# limit: 240
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
run bench 220 /job/gpunet-bench --device cpu --quick latency --transport rc --address "$ME" --sizes 64,65536
cat /tmp/bench.log
for line in '^peer .* 65536 B, rstream' '^peer .* 65536 B, ib_write_lat' '^gpunet 64 B .* peer$' '^gpunet 65536 B .* peer$'; do
    says /tmp/bench.log "$line" || fail "gpunet-bench does not say: $line"
done
# Without this, a table of another transport would pass.
carried rxe0 10000

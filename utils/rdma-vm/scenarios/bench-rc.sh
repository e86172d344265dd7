# gpunet-bench over rc finds its references, rstream and ib_write_lat, and measures beside them. Figures are not asserted.
# in: quick
# guests: one
# needs: gpunet-bench
# limit: 240
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
run bench 220 /job/gpunet-bench --device cpu --quick latency --transport rc --address "$ME" --sizes 64,65536
cat /tmp/bench.log
ratio=
for program in rstream ib_write_lat; do
    if says /tmp/bench.log "^reference .*65536 B, $program"; then
        ratio=' reference$'
    else
        # gpunet-bench has tried several times.
        crash=$(sed -n "s/^ *note: without $program: \(it crashed .*\)/\1/p" /tmp/bench.log)
        [ -n "$crash" ] || fail "gpunet-bench does not print: $program, 65536 B"
        left_out "$program: $crash"
    fi
done
for size in 64 65536; do
    says /tmp/bench.log "^gpunet  *$size B .*$ratio" || fail "gpunet-bench does not print: gpunet, $size B, beside a reference"
done
# Without this, a table of another transport would pass.
carried rxe0 10000

# gpunet-diagnose where there is an RDMA device: every check of it, and the echo over rc.
# in: quick
# guests: one
# needs: gpunet-diagnose
# limit: 120
# shellcheck shell=sh source=scenarios/lib.sh
. /job/scenarios/lib.sh
mark rxe0
# 1: a guest has few processors and no GPU.
run diagnose 100 sh -c '/job/gpunet-diagnose --require rdma; code=$?; [ $code -le 1 ] || exit $code'
grep -E ' (rdma|selftest|require)\.' /tmp/diagnose.log
for check in rdma.libraries rdma.devices rdma.cm 'rdma.provider rxe0' 'rdma.port rxe0 port 1' 'rdma.gids rxe0 port 1' \
    'rdma.address rxe0 port 1' 'selftest.rc cpu' require.rdma; do
    says /tmp/diagnose.log "^ok  *$check " || fail "$check is not ok"
done
# 64 messages of 3000 bytes, there and back.
carried rxe0 384000

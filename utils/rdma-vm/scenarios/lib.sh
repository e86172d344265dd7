# shellcheck shell=sh disable=SC2034
# What scenarios share; each begins with `. /job/scenarios/lib.sh`. They run in the guest, in dash, as root.

# ---- what is under test: the command lines, once ----
ECHO=/job/gpunet-echo
ECHO_OPTIONS="--device cpu --transport rc"
RSTREAM=/job/gpunet-rstream
RSTREAM_OPTIONS="--device cpu --transport rc"
export GPUNET_VERBS=rdma
PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so.1
ECHO_PORT=7777
RSTREAM_PORT=7471

# ---- where: in namespaces a is the client's side and b the server's; with two guests 1 and 2 are ----
at_a() { ip netns exec a "$@"; }
at_b() { ip netns exec b "$@"; }
IP_A=10.1.0.1
IP_B=10.1.0.2
DEVICE_A=ra
DEVICE_B=rb
[ "${TWO:-0}" = 0 ] || { DEVICE_A=rxe0 DEVICE_B=rxe0; }

is_server() { [ "$HOST" = 2 ]; }

# ---- ends ----
fail() {
    for log in /tmp/*.log; do
        [ ! -s "$log" ] || { echo "-- $log"; tail -n 20 "$log"; }
    done
    echo "$*"
    exit 1
}
skip() {
    echo "$*"
    exit 77
}
# left_out WHAT...: leaves out a foreign program that crashes repeatedly. The verdict is about this project, but the
# summary names what was left out.
left_out() { echo "LEFT OUT: $*"; }
say_step() { echo "[$(cut -d' ' -f1 /proc/uptime)] $*"; }

# ---- processes ----

# start NAME COMMAND...: runs it in the background, with output in /tmp/NAME.log and the process id in $started. COMMAND may
# begin with at_a or at_b, which become the process itself.
start() {
    log=/tmp/$1.log
    shift
    case $1 in
        at_a) shift && set -- ip netns exec a "$@" ;;
        at_b) shift && set -- ip netns exec b "$@" ;;
    esac
    say_step "start: $*"
    "$@" >"$log" 2>&1 &
    started=$!
}

# A dead child that nobody waited for is a zombie, which kill -0 would still find.
is_running() { [ -r "/proc/$1/stat" ] && ! grep -q ') Z ' "/proc/$1/stat" 2>/dev/null; }

# until_true SECONDS COMMAND...: retries until it succeeds; fails after SECONDS.
until_true() {
    end=$(($(cut -d. -f1 /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$end" ] || return 1
        sleep 0.1
    done
}

is_ended() { ! is_running "$1"; }

# ended PROCESS SECONDS WHAT: waits for its end; its exit code is in $code.
ended() {
    until_true "$2" is_ended "$1" || fail "$3 does not end within $2 s"
    code=0
    wait "$1" || code=$?
}

# ended_well PROCESS SECONDS WHAT
ended_well() {
    ended "$@"
    [ "$code" -eq 0 ] || fail "$3: exit code $code"
}

# ended_with_error PROCESS SECONDS WHAT LOG: it exits with an error code and a message, without a panic or a signal.
ended_with_error() {
    ended "$@"
    [ "$code" -ne 0 ] || fail "$3 ended well, where it could not have"
    { [ "$code" -ne 101 ] && [ "$code" -lt 128 ]; } || fail "$3: panic or signal, exit code $code"
    [ -s "$4" ] || fail "$3 ended with exit code $code and not a word"
    say_step "$3 ended with exit code $code: $(tail -n1 "$4" | cut -c1-120)"
}

# run NAME SECONDS COMMAND...: runs it in the foreground; it must succeed.
run() {
    run_name=$1 run_limit=$2
    shift 2
    start "$run_name" "$@"
    ended_well "$started" "$run_limit" "$run_name"
}

says() { grep -q -- "$2" "$1"; }

# start_server NAME COMMAND...: waits for its "listening on" line; the process id is in $server.
start_server() {
    server_log=/tmp/$1.log
    start "$@"
    server=$started
    until_true 20 server_is_up || fail "$1 does not listen within 20 s"
    is_running "$server" || fail "$1 ended at once"
}
server_is_up() { is_ended "$server" || says "$server_log" "listening on"; }

# start_peer NAME PORT COMMAND...: the same for a silent program: waits for an rdma_cm listener on the port.
start_peer() {
    peer_port=$2
    peer_name=$1
    shift 2
    start "$peer_name" "$@"
    server=$started
    until_true 20 peer_is_up || fail "$peer_name does not listen within 20 s"
    is_running "$server" || fail "$peer_name ended at once"
}
peer_is_up() { is_ended "$server" || has_listener "$peer_port"; }
has_listener() { rdma resource show cm_id | grep 'state LISTEN' | grep -q ":$1 "; }

# ---- what the devices saw ----

# hw DEVICE COUNTER
hw() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2" 2>/dev/null || echo 0; }

# mark DEVICE...: stores its counters, for grew.
mark() {
    for device; do
        for counter in sent_pkts sent_bytes rcvd_rnr_err send_rnr_err out_of_seq_request rcvd_seq_err; do
            hw "$device" $counter >"/tmp/mark.$device.$counter"
        done
    done
}
grew() { echo $(($(hw "$1" "$2") - $(cat "/tmp/mark.$1.$2"))); }

# carried DEVICE BYTES: it has sent at least BYTES since mark. Old kernels count only packets, of at most 4096 bytes.
carried() {
    if [ -e "/sys/class/infiniband/$1/ports/1/hw_counters/sent_bytes" ]; then
        sent=$(grew "$1" sent_bytes)
    else
        sent=$(($(grew "$1" sent_pkts) * 4096))
    fi
    [ "$sent" -ge "$2" ] || fail "$1 sent $sent bytes over RDMA, not $2: what carried the rest?"
    say_step "$1 sent $sent bytes over RDMA, of $2 expected at least"
}

# no_rnr DEVICE...: no receiver was without a posted receive, which costs 655 ms each time.
no_rnr() {
    for device; do
        for counter in rcvd_rnr_err send_rnr_err; do
            [ "$(grew "$device" $counter)" -eq 0 ] || fail "$device: $counter grew by $(grew "$device" $counter)"
        done
    done
}

# no_tcp_port PORT: nobody listens on it in b; the preload library silently falls back to TCP.
no_tcp_port() { ! at_b ss -Hltn "sport = :$1" | grep -q . || fail "somebody listens on TCP port $1"; }

# resources DEVICE: what is allocated, as "qp N cm_id N mr N".
resources() { rdma resource show "$1" | sed -nE "s/.*: (.*)/\1/p" | tr ' ' '\n' | paste - - | awk '
    $1 == "qp" || $1 == "cm_id" || $1 == "mr" || $1 == "cq" || $1 == "pd" { printf "%s %s ", $1, $2 }'; }
# queues DEVICE: of these, the ones of single connections; registrations are kept for the next connection.
queues() { resources "$1" | sed -E 's/(pd|mr) [0-9]+ //g'; }
has_queues() { [ "$(queues "$1")" = "$2" ]; }
amount() { resources "$1" | sed -nE "s/.*$2 ([0-9]+) .*/\1/p"; }
has_resources() { [ "$(resources "$1")" = "$2" ]; }

# resources_back DEVICE BEFORE SECONDS
resources_back() {
    until_true "$3" has_resources "$1" "$2" ||
        fail "$1 has $(resources "$1")after $3 s, where it had $2before"
    say_step "$1 has $(resources "$1")again"
}

# ---- gpunet-echo and gpunet-rstream ----

# echo_server_b: in namespace b.
echo_server_b() {
    # shellcheck disable=SC2086
    start_server echo-server at_b $ECHO server $IP_B:$ECHO_PORT $ECHO_OPTIONS
}

# warm_up COMMAND...: a short client, before resources are counted: a server keeps registrations of its rings for later
# connections. COMMAND is at_a or nothing, then the address and further arguments of the client.
warm_up() {
    where=
    [ "$1" != at_a ] || { where=at_a && shift; }
    # shellcheck disable=SC2086
    run "warm-up" 40 $where $ECHO client "$1" $ECHO_OPTIONS --size 64K --count 4 --connections 2 --json
    check_report /tmp/warm-up.log
    sleep 3
}

# check_report LOG: by gpunet-echo's JSON all bytes came back over rc.
check_report() {
    says "$1" '"errors": *0[,}]' || fail "the report has errors"
    says "$1" '"bytes_verified": *[1-9]' || fail "the report has no bytes"
    says "$1" '"transport": *"rc"' || fail "the report is not about rc"
}

# stops SERVER: on SIGINT, with exit code 0.
stops() {
    kill -INT "$1"
    ended_well "$1" 20 "the interrupted server"
}

# ---- siw: one RDMA device on an interface at a time ----
siw_for_rxe() {
    rdma link del rxe0
    rdma link add siw0 type siw netdev "$DEV" || fail "no siw device"
}
rxe_for_siw() {
    rdma link del siw0
    rdma link add rxe0 type rxe netdev "$DEV"
}

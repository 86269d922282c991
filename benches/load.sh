#!/bin/sh
# The complete server against the bare bridge, in one run: alternating, twice each, server on one core, callers and model
# on another. Prints every run and the ratio of CPU for a call-second. The method stands in docs/measured.md.
#
#   benches/load.sh [CALLS [SECONDS [ROUNDS]]]          300 calls, 30 s, 2 rounds if nothing is said
#
# PROFILE=release builds as shipped; the default bench-fast differs by link-time optimisation only and builds sooner.
# SERVER_CORE and LOAD_CORE choose the cores (0 and 1). DETECTOR and the like: any ANSWERBACK__* of the environment is
# passed on. The numbers count only on a machine that does nothing else; the load average is printed with them.
set -eu
cd "$(dirname "$0")/.."

calls=${1:-300}
seconds=${2:-30}
rounds=${3:-2}
profile=${PROFILE:-bench-fast}
server_core=${SERVER_CORE:-0}
load_core=${LOAD_CORE:-1}
server_port=${SERVER_PORT:-18080}
bare_port=${BARE_PORT:-18081}
model_port=${MODEL_PORT:-18082}

command -v taskset >/dev/null 2>&1 || { echo "load.sh: taskset is missing (package util-linux)" >&2; exit 1; }
# Each call is two sockets at the server and four at the outside.
ulimit -n "$((calls * 6 + 1024))" 2>/dev/null || echo "load.sh: no more open files than $(ulimit -n) are allowed" >&2

# One command: two would choose features apart from each other and build the common crates twice.
cargo build --profile "$profile" -p sim -p server --example outside --example bare_bridge --example serve
built=${CARGO_TARGET_DIR:-target}/$profile/examples

runs=$(mktemp -d)
started=
cleanup() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$runs"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# start CORE LOG COMMAND…: in the background, its process id in `pid`. `taskset` becomes the command, so the id is its.
start() {
    core=$1 log=$2
    shift 2
    taskset -c "$core" "$@" >"$log" 2>&1 &
    pid=$!
    started="$started $pid"
}

# listening PORT: waits until somebody does.
listening() {
    hex=$(printf ':%04X ' "$1")
    for _ in $(seq 100); do
        grep -q "$hex.* 0A " /proc/net/tcp && return 0
        sleep 0.1
    done
    echo "load.sh: nobody listens on port $1" >&2
    cat "$runs"/*.log >&2
    exit 1
}

export AUTH_TOKEN=load_run_token
export ANSWERBACK__TWILIO__AUTH_TOKEN=$AUTH_TOKEN
export ANSWERBACK__SERVER__BIND=127.0.0.1:$server_port
# Signed for, never looked up: the generator connects to the address.
export ANSWERBACK__SERVER__PUBLIC_URL=https://load.example.com
export ANSWERBACK__SERVER__MAX_CALLS=$((calls + 100))
export ANSWERBACK__MODEL__BASE_URL=ws://127.0.0.1:$model_port/v1
export ANSWERBACK__MODEL__API_KEY=load

start "$load_core" "$runs/model.log" "$built/outside" load-model "127.0.0.1:$model_port"
listening "$model_port"

# run bare|complete ROUND: one server, fresh, one load run, one line of JSON.
run() {
    out=$runs/$1-$2.json
    case $1 in
    bare)
        start "$server_core" "$runs/$1-$2.log" "$built/bare_bridge" --listen "127.0.0.1:$bare_port" \
            --model "ws://127.0.0.1:$model_port/v1/realtime?model=load"
        listening "$bare_port"
        JSON=1 taskset -c "$load_core" "$built/outside" load "ws://127.0.0.1:$bare_port/" "$calls" "$seconds" "$pid" >"$out"
        ;;
    complete)
        ANSWERBACK__SERVER__DATA_DIR=$runs/data-$2 start "$server_core" "$runs/$1-$2.log" "$built/serve" config
        listening "$server_port"
        JSON=1 taskset -c "$load_core" "$built/outside" load-calls https://load.example.com/twilio/voice \
            "127.0.0.1:$server_port" "$calls" "$seconds" "$pid" >"$out"
        ;;
    esac
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    row "$1" "$2" <"$out"
}

# row WHO ROUND: a line of the table from a report. Fields of a spread are found behind the spread's name.
row() {
    awk -v who="$1" -v n="$2" -v load="$(cut -d ' ' -f 1 /proc/loadavg)" '
        function number(text, key) {
            if (!match(text, "\"" key "\":-?[0-9.]+")) return "none"
            return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        }
        function within(text, key) { return substr(text, index(text, "\"" key "\":{")) }
        {
            connected = number($0, "connected")
            pace = connected * number($0, "seconds")
            printf "%-9s %2d %8.3f %6.1f %9.2f %9.2f %9.2f %9.2f %8.1f %6d %5d %6.1f %6.1f %9.2f %6.1f %6s\n", who, n,
                number($0, "cpu_ms_per_call_second"), number($0, "server_cpu_percent"),
                number(within($0, "barge_in"), "p50_ms"), number(within($0, "barge_in"), "p99_ms"),
                number(within($0, "lateness"), "p50_ms"), number(within($0, "lateness"), "p99_ms"),
                number($0, "resident_kb_per_call"), connected,
                number($0, "failed_connects") + number($0, "lost_streams") + number($0, "unanswered_barge_ins"),
                pace ? number($0, "sent_frames") / pace : 0, pace ? number($0, "received_frames") / pace : 0,
                number(within($0, "generator_late"), "p99_ms"), number($0, "generator_cpu_percent"), load
        }' | tee -a "$runs/table"
}

echo "$(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F), $(uname -sr), $(nproc) cores: $calls calls for $seconds s, profile $profile"
echo "CPU: ms of the server for a call-second. KB: resident growth a call. load: load average after the run."
echo "in/s, out/s: media messages a call-second; fewer than 50 in, and the machine was too busy for the run to count."
printf '%-9s %2s %8s %6s %9s %9s %9s %9s %8s %6s %5s %6s %6s %9s %6s %6s\n' \
    server n CPU core% barge50 barge99 late50 late99 KB calls bad in/s out/s gen.p99 gen.% load
n=1
while [ "$n" -le "$rounds" ]; do
    run bare "$n"
    run complete "$n"
    n=$((n + 1))
done
awk '$1 == "bare" { bare += $3 } $1 == "complete" { complete += $3 }
    END { if (bare > 0) printf "CPU of the complete server against the bare bridge: %.2f\n", complete / bare }' "$runs/table"

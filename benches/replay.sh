#!/bin/sh
# Recorded calls, timed: makes calls over real sockets with recording on, and replays them.
#
#   benches/replay.sh [CALLS [DIR]]        100 calls into a new folder that is removed, if nothing is said; DIR is kept
#
# 1. the demo's recording, replayed 1,000 times
# 2. CALLS calls of simulated callers (at least 50), each replayed once; the callers differ in when they go on talking
# 3. the recording of a server that was killed (SIGKILL), replayed to its last step
# 4. `what-if --set gate.quiet_ms=400` on 50 of the calls: table and plot, in DIR/what-if.txt and DIR/what-if.svg
#
# Exit code 1 when anything drifts. PROFILE=release builds as shipped, PROFILE=dev soonest; bench-fast is the default. The
# calls take real time, about 16 s each, AT_ONCE (8) at a time. The load average is printed: timings count on a quiet machine.
set -eu
cd "$(dirname "$0")/.."

calls=${1:-100}
profile=${PROFILE:-bench-fast}
at_once=${AT_ONCE:-8}
[ "$calls" -ge 50 ] || { echo "replay.sh: at least 50 calls, for the comparison" >&2; exit 2; }
cargo build --quiet --profile "$profile" -p answerback
built=$profile
[ "$built" = dev ] && built=debug
answerback=${CARGO_TARGET_DIR:-target}/$built/answerback

if [ $# -ge 2 ]; then
    dir=$2
    mkdir -p "$dir"
    [ -z "$(ls -A "$dir")" ] || { echo "replay.sh: $dir is not empty" >&2; exit 2; }
else
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
fi

# call N: a scenario. A booking becomes ready during or soon after the agent's acknowledgement and waits for quiet; a fifth of
# the callers go on 520 to 740 ms after the agent's last word, a fifth later, a fifth sooner, two fifths not at all.
call() {
    n=$1
    commit_ms=$((1000 + n * 37 % 17 * 120))
    case $((n % 5)) in
    0) pause_ms=$((520 + n * 13 % 23 * 10)) ;;
    1) pause_ms=$((700 + n * 29 % 80 * 10)) ;;
    2) pause_ms=$((150 + n * 7 % 21 * 10)) ;;
    *) pause_ms= ;;
    esac
    cat <<EOF
name = "A caller of the bench"
story = "A booking waits for quiet, and the caller goes on or not."

[[caller]]
when = { after = "agent_stops", plus_ms = $((200 + n * 11 % 30 * 10)) }
say = "builtin:caller_request"
EOF
    if [ -n "$pause_ms" ]; then
        cat <<EOF

[[caller]]
when = { after = "agent_stops: one moment", plus_ms = $pause_ms }
speech_ms = $((900 + n * 17 % 12 * 100))
text = "And by the window, if there is one."
EOF
    fi
    cat <<EOF

[[backend]]
commit_ms = $commit_ms

[[model]]
instructions_contain = "Greet the guest"
say = "Good evening, the Blue Door."
ms = 1200
[[model]]
instructions_contain = "Also tell the caller"
delay_ms = $((80 + n * 5 % 9 * 20))
say = "By the window, and your table is booked under B seven."
ms = 2900
[[model]]
instructions_contain = "Say it again"
delay_ms = 150
say = "Again: your table is booked, B seven."
ms = 2000
[[model]]
instructions_contain = "Tell the caller now"
delay_ms = $((60 + n * 3 % 4 * 20))
say = "Your table for two at nine is booked. The reference is B seven."
ms = 3200
[[model]]
instructions_contain = "not confirmed"
delay_ms = $((80 + n * 7 % 9 * 10))
say = "One moment, I am putting that in."
ms = 1700
[[model]]
after = "user"
once = true
delay_ms = 150
call = { name = "book_table", arguments = { party_size = 2, time = "21:00" } }
[[model]]
say = "Certainly."
ms = 700

[expect]
effects = 1
EOF
}

mkdir "$dir/scenarios"
n=1
while [ "$n" -le "$calls" ]; do
    call "$n" >"$dir/scenarios/$(printf 'call_%03d' "$n").toml"
    n=$((n + 1))
done

echo "$(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F), $(uname -sr), $(nproc) cores, profile $profile"
echo "making the demo's call, a killed server's call and $calls calls, $at_once at a time ..."
"$answerback" demo --plain --keep "$dir/demo" >"$dir/demo.txt"
"$answerback" demo --plain --kill --keep "$dir/killed" >"$dir/killed.txt"
"$answerback" scenario run "$dir/scenarios" --live --at-once "$at_once" --keep "$dir/calls" >"$dir/calls.txt" ||
    echo "some calls did not come out as scenarios should (see calls.txt); their recordings count all the same"

echo "load average: $(cut -d ' ' -f 1-3 /proc/loadavg)"
echo "1. the demo's call, 1,000 times"
"$answerback" replay --times 1000 "$dir/demo/data/recordings"
echo "2. $calls calls over real sockets"
"$answerback" replay "$dir/calls" | tail -n 1
echo "3. a killed server's call, and the call after it"
"$answerback" replay "$dir/killed/data/recordings"
echo "4. quiet of 400 ms instead of 650 ms, on 50 calls"
mkdir "$dir/fifty"
find "$dir/calls" -mindepth 1 -maxdepth 1 | sort | head -n 50 | while read -r one; do cp -R "$one" "$dir/fifty/"; done
"$answerback" what-if --set gate.quiet_ms=400 --plot "$dir/what-if.svg" "$dir/fifty" | tee "$dir/what-if.txt"

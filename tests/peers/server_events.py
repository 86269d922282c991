"""Every event that Answerback sends to a model in real calls, and every event that the simulated model sends, against the
vendor's types."""

import json

import check_wire
import processes
from processes import Failed

# Each of these must have occurred, so that nothing passes by not being sent.
REALTIME_COMMANDS = (
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "response.create (with metadata)",
    "response.cancel",
    "conversation.item.create (function_call_output)",
    "conversation.item.create (system message)",
    # What was said before, for a session that takes the place of a lost one.
    "conversation.item.create (user message)",
    "conversation.item.create (assistant message)",
    "conversation.item.truncate",
    "conversation.item.delete",
)
LIVE_COMMANDS = (
    "session.start",
    "session.input_audio.append",
    "session.commentary.append",
    "session.thinking.append",
    "response.item.create",
    "response.create (bare)",
    "session.close",
)
# As many as the project's own test of them: they mostly wait; each is a server process, a phone and a model.
AT_ONCE = 10
TIMEOUT_S = 420


def play(place):
    """Plays every scenario over real sockets; returns (in words, seconds, the wire logs by protocol)."""
    logs, seconds = [], 0.0
    for name, folder in (("scenarios", place.root / "tests/scenarios"), ("own", place.sources / "scenarios")):
        kept = place.scratch / name
        for old in kept.glob("*/model-wire.jsonl"):
            old.unlink()
        command = [str(place.program), "scenario", "run", str(folder), "--live"]
        command += ["--at-once", str(AT_ONCE), "--keep", str(kept)]
        code, told, took = processes.run(command, TIMEOUT_S, place.scratch / f"{name}.log")
        seconds += took
        if code:
            failed = [line.strip() for line in told.splitlines() if line.strip() and not line.endswith(" ok")]
            raise Failed(f"{folder.name}: {'; '.join(failed[:3])[:400]}")
        logs += sorted(kept.glob("*/model-wire.jsonl"))
    by_protocol = {"realtime": [], "live": []}
    for log in logs:
        by_protocol[protocol_of(log)].append(log)
    return "scenarios over real sockets", seconds, by_protocol


def protocol_of(log):
    """A scenario has one model, and the first thing that it is told is of its interface."""
    with open(log, encoding="utf-8") as lines:
        kinds = (line["event"].get("type") for line in map(json.loads, lines) if line["dir"] == "in")
        return "live" if next(kinds, None) == "session.start" else "realtime"


def sim_tests(place, cargo, target):
    """Runs a target of the simulators' own tests, which log what went over the wire; returns the log."""
    log = place.scratch / f"{target}.wire.jsonl"
    log.unlink(missing_ok=True)
    command = [cargo, "test", "--quiet", "--manifest-path", str(place.root / "Cargo.toml")]
    command += ["--package", "sim", "--test", target]
    output = place.scratch / f"{target}.log"
    code, _, _ = processes.run(command, TIMEOUT_S, output, {"SIM_MODEL_WIRE_LOG": str(log)})
    if code:
        raise Failed(f"cargo test -p sim --test {target} fails: {processes.last_line(output)}")
    return log


def our_commands(logs, protocol="realtime"):
    """What our server sent in all its calls: valid, and every kind of it."""
    checked = sound_commands(logs, protocol)
    wanted = {"realtime": REALTIME_COMMANDS, "live": LIVE_COMMANDS}[protocol]
    if missing := [command for command in wanted if not checked.counts[command]]:
        raise Failed(f"never sent: {', '.join(missing)}")
    if surprising := [form for form in checked.counts if form not in wanted]:
        raise Failed(f"sent and not expected: {', '.join(surprising)}; name it in server_events.py if it is meant")
    return checked


def sound_commands(logs, protocol="realtime"):
    return without_fault(logs, "in", protocol)


def model_events(logs, protocol="realtime"):
    """What the simulated model sent, to whomever."""
    return without_fault(logs, "out", protocol)


def without_fault(logs, direction, protocol):
    checked = check_wire.check(logs, (direction,), protocol)[direction]
    if checked.wrong:
        raise Failed(f"{checked.wrong} of {checked.total()} events are wrong: {'; '.join(checked.findings[:3])}")
    if not checked.total():
        raise Failed("no event in the logs")
    return checked

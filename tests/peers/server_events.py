"""Every event that Answerback sends to a model in real calls, and every event that the simulated model sends, against the
vendor's types."""

import check_wire
import processes
from processes import Failed

# Each of these must have occurred, so that nothing passes by not being sent.
COMMANDS = (
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "response.create (with metadata)",
    "response.cancel",
    "conversation.item.create (function_call_output)",
    "conversation.item.create (system message)",
    "conversation.item.truncate",
    "conversation.item.delete",
)
# They mostly wait; each is a server process, a phone and a model.
AT_ONCE = 16
TIMEOUT_S = 420


def play(place):
    """Plays every scenario over real sockets; returns (in words, seconds, the wire logs)."""
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
    return f"{len(logs)} scenarios over real sockets", seconds, logs


def our_commands(logs):
    """What our server sent in all its calls: valid, and every kind of it."""
    checked = sound_commands(logs)
    if missing := [command for command in COMMANDS if not checked.counts[command]]:
        raise Failed(f"never sent: {', '.join(missing)}")
    if surprising := [form for form in checked.counts if form not in COMMANDS]:
        raise Failed(f"sent and not expected: {', '.join(surprising)}; name it in COMMANDS if it is meant")
    return checked


def sound_commands(logs):
    return without_fault(logs, "in")


def model_events(logs):
    """What the simulated model sent, to whomever."""
    return without_fault(logs, "out")


def without_fault(logs, direction):
    checked = check_wire.check(logs, (direction,))[direction]
    if checked.wrong:
        raise Failed(f"{checked.wrong} of {checked.total()} events are wrong: {'; '.join(checked.findings[:3])}")
    if not checked.total():
        raise Failed("no event in the logs")
    return checked

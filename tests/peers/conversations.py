"""Each peer converses with a simulated model of its own. What it tells of itself is one half of the verdict; the other is
what went over the wire, which the peer has no hand in."""

import dataclasses
import json

import check_wire
import processes
from processes import Failed

# Fast enough that a client must reckon with generation before sound, slow enough to be talked over while it generates.
SPEED = 2
TIMEOUT_S = 120
STEPS = ("configured", "greeted", "understood", "tool called", "followed up", "interrupted", "answered", "ended")


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    # Whose interpreter and packages: `python`, `pipecat` or `js`.
    kind: str
    script: str
    # What the session must have been negotiated to.
    format: str
    # Errors that its conversation earns on purpose, or that its authors reckon with.
    errors: tuple = ()


def converse(place, peer):
    """Plays the conversation; returns (in words, seconds, the wire log)."""
    wire_log = place.scratch / f"{peer.name}.wire.jsonl"
    script = place.sources / "conversations/booking.toml"
    with processes.model(place, script, wire_log, SPEED) as url:
        command = [*place.interpreter(peer.kind), place.script(peer.kind, peer.script), url, str(place.voices)]
        log = place.scratch / f"{peer.name}.log"
        code, told, seconds = processes.run(command, TIMEOUT_S, log)
    lines = [line for line in told.splitlines() if line.startswith("{")]
    report = json.loads(lines[-1]) if lines else {"peer": peer.name, "steps": {}}
    missing = [step for step in STEPS if step not in report["steps"]]
    if code or missing:
        raise Failed(f"{report['peer']}: came not to {missing}, exit code {code}: {processes.last_line(log)}")
    if broken := wire_facts(check_wire.lines(wire_log), peer):
        raise Failed(f"{report['peer']}: the wire log lacks {', '.join(broken)}")
    return f"{report['peer']}: {report['steps']['interrupted']}", seconds, wire_log


def wire_facts(log, peer):
    """What must be in the log of a whole conversation and is not."""
    sent = [line["event"] for line in log if line["dir"] == "out"]
    got = [line["event"] for line in log if line["dir"] == "in"]

    def of(events, kind):
        return [event for event in events if event["type"] == kind]

    ends = [event["response"] for event in of(sent, "response.done")]
    spoken = [r for r in ends if r["status"] == "completed" and any(i["type"] == "message" for i in r["output"])]
    issued = {item["call_id"] for r in ends for item in r["output"] if item["type"] == "function_call"}
    kept = [event["item"] for event in of(sent, "conversation.item.done")]
    answered = {item["call_id"] for item in kept if item["type"] == "function_call_output"}
    formats = [event["session"]["audio"] for event in of(sent, "session.updated")]
    codes = {event["error"]["code"] for event in of(sent, "error")}
    facts = {
        f"a session in {peer.format} both ways": bool(formats)
        and {formats[-1][side]["format"]["type"] for side in ("input", "output")} == {peer.format},
        "ten seconds of the caller, in 50 appends or more": len(of(got, "input_audio_buffer.append")) >= 50,
        "two turns that were committed and transcribed": len(of(sent, "input_audio_buffer.committed")) >= 2
        and len(of(sent, "conversation.item.input_audio_transcription.completed")) >= 2,
        "three answers that were spoken to the end": len(spoken) >= 3,
        "one call, and its output in the conversation": len(issued) == 1 and issued == answered,
        "an answer that was cut off": any(r["status"] == "cancelled" for r in ends),
        "a truncation that was accepted": bool(of(sent, "conversation.item.truncated")),
        f"no error but {peer.errors or 'none'} ({codes})": codes <= set(peer.errors),
    }
    return [fact for fact, holds in facts.items() if not holds]

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
    # Or `live`.
    protocol: str = "realtime"


def converse(place, peer):
    """Plays the conversation; returns (in words, seconds, the wire log)."""
    wire_log = place.scratch / f"{peer.name}.wire.jsonl"
    script = place.sources / f"conversations/{peer.protocol}.toml"
    with processes.model(place, script, wire_log, SPEED) as url:
        command = [*place.interpreter(peer.kind), place.script(peer.kind, peer.script), url, str(place.voices)]
        log = place.scratch / f"{peer.name}.log"
        code, told, seconds = processes.run(command, TIMEOUT_S, log)
    lines = [line for line in told.splitlines() if line.startswith("{")]
    report = json.loads(lines[-1]) if lines else {"peer": peer.name, "steps": {}}
    missing = [step for step in STEPS if step not in report["steps"]]
    if code or missing:
        raise Failed(f"{report['peer']}: came not to {missing}, exit code {code}: {processes.last_line(log)}")
    facts = {"realtime": realtime_facts, "live": live_facts}[peer.protocol]
    if broken := facts(check_wire.lines(wire_log), peer):
        raise Failed(f"{report['peer']}: the wire log lacks {', '.join(broken)}")
    return f"{report['peer']}: {report['steps']['interrupted']}", seconds, wire_log


def realtime_facts(log, peer):
    """What must be in the log of a whole conversation and is not."""
    sent, got = by_direction(log)
    ends = [event["response"] for event in of(sent, "response.done")]
    spoken = [r for r in ends if r["status"] == "completed" and any(i["type"] == "message" for i in r["output"])]
    issued = {item["call_id"] for r in ends for item in r["output"] if item["type"] == "function_call"}
    kept = [event["item"] for event in of(sent, "conversation.item.done")]
    answered = {item["call_id"] for item in kept if item["type"] == "function_call_output"}
    formats = [event["session"]["audio"] for event in of(sent, "session.updated")]
    return missing(
        peer,
        sent,
        {
            f"a session in {peer.format} both ways": bool(formats)
            and {formats[-1][side]["format"]["type"] for side in ("input", "output")} == {peer.format},
            "a caller who is heard, in 50 appends or more": len(of(got, "input_audio_buffer.append")) >= 50,
            "two turns that were committed and transcribed": len(of(sent, "input_audio_buffer.committed")) >= 2
            and len(of(sent, "conversation.item.input_audio_transcription.completed")) >= 2,
            "three answers that were spoken to the end": len(spoken) >= 3,
            "one call, and its output in the conversation": len(issued) == 1 and issued == answered,
            "an answer that was cut off": any(r["status"] == "cancelled" for r in ends),
            "a truncation that was accepted": bool(of(sent, "conversation.item.truncated")),
        },
    )


def live_facts(log, peer):
    """The same of a model that speaks by itself."""
    sent, got = by_direction(log)
    said = "".join(event["delta"] for event in of(sent, "session.output_transcript.delta"))
    heard = "".join(event["delta"] for event in of(sent, "session.input_transcript.delta"))
    runs = [event["event"] for event in of(sent, "response.event")]
    calls = [run["item"] for run in of(runs, "response.output_item.done") if run["item"]["type"] == "function_call"]
    outputs = [event["item"]["call_id"] for event in of(got, "response.item.create")]
    formats = {event["session"]["audio"]["format"]["type"] for event in of(sent, "session.started")}
    return missing(
        peer,
        sent,
        {
            f"a session in {peer.format}": formats == {peer.format},
            "a caller who is heard, in 50 appends or more": len(of(got, "session.input_audio.append")) >= 50,
            "two turns of the caller, in words": "two at nine" in heard and "That would be lovely" in heard,
            "three lines of the model, in words": all(w in said for w in ("help you?", "Your table", "seat wish.")),
            "one call, and its output": len(calls) == 1 and calls[0]["call_id"] in outputs,
            "one continuation": len(of(got, "response.create")) == 1,
            "a line that was given up": "quarter of an hour" not in said,
            "an end that was asked for": [e["reason"] for e in of(sent, "session.closed")] == ["close_requested"],
        },
    )


def by_direction(log):
    return [[line["event"] for line in log if line["dir"] == direction] for direction in ("out", "in")]


def of(events, kind):
    return [event for event in events if event["type"] == kind]


def missing(peer, sent, facts):
    codes = {event["error"]["code"] for event in of(sent, "error")}
    facts[f"no error but {', '.join(peer.errors) or 'none'} (there is {codes})"] = codes <= set(peer.errors)
    return [fact for fact, holds in facts.items() if not holds]

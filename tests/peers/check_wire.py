"""Checks wire logs of the simulated model against the types that the vendor publishes with its Python client.

A log is JSON lines {"us", "session", "dir": "in" | "out", "event"}: "in" came from the client, "out" from the model. The
unions of the package accept unknown keys and their errors name every member, so the class is picked by `type`, and what
it did not know is looked for afterwards. A pass is necessary, not sufficient: some members are optional in the types and
always there on the wire.
"""

import collections
import json
import typing

import pydantic
from openai.types import live, realtime, responses

# On the wire and in the guides, but not in the package's types.
KNOWN_EXTRAS = {
    ("out", "phase"),
    ("out", "response.status_details.error.message"),
    # The types describe a session as a client asks for it; what the server adds is in RealtimeSessionCreateResponse, and
    # against that the session is checked as well.
    ("out", "session.id"),
    ("out", "session.object"),
    ("out", "session.expires_at"),
}
SESSION_EVENTS = ("session.created", "session.updated")

MAX_FINDINGS = 20


def classes(union):
    """By the one value of their `type`."""
    members = typing.get_args(typing.get_args(union)[0]) or typing.get_args(union)
    return {typing.get_args(member.model_fields["type"].annotation)[0]: member for member in members}


# By protocol and direction.
CLASSES = {
    "realtime": {"in": classes(realtime.RealtimeClientEvent), "out": classes(realtime.RealtimeServerEvent)},
    "live": {"in": classes(live.ClientEvent), "out": classes(live.ServerEvent)},
}
RESPONSES = classes(responses.ResponseStreamEvent)


def unknown_keys(value, path=""):
    if isinstance(value, pydantic.BaseModel):
        for key in value.model_extra or {}:
            yield f"{path}.{key}".lstrip(".")
        for name in type(value).model_fields:
            yield from unknown_keys(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for member in value:
            yield from unknown_keys(member, path)
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from unknown_keys(member, f"{path}.{name}")


def is_known_extra(direction, path):
    return (direction, path) in KNOWN_EXTRAS or (direction, path.rsplit(".", 1)[-1]) in KNOWN_EXTRAS


def problems(direction, event, protocol="realtime"):
    """What the types have against one event."""
    kind = event.get("type") if isinstance(event, dict) else None
    known = CLASSES[protocol][direction].get(kind)
    if known is None:
        return [f"{kind!r} is no event of the {'client' if direction == 'in' else 'server'}"]
    found = misfits(known, direction, event)
    if kind == "response.event":
        found += nested_problems(direction, event.get("event"))
    if protocol == "realtime" and kind in SESSION_EVENTS:
        found += misfits(realtime.RealtimeSessionCreateResponse, direction, event.get("session"))
    return [f"{kind}: {misfit}" for misfit in found]


def nested_problems(direction, event):
    """A backend's run is told in the events of another interface, which the Live types leave open."""
    nested = event.get("type") if isinstance(event, dict) else None
    known = RESPONSES.get(nested)
    if known is None:
        return [f"event: {nested!r} is no event of a response's stream"]
    return [f"event: {misfit}" for misfit in misfits(known, direction, event)]


def misfits(known, direction, value):
    try:
        parsed = known.model_validate(value)
    except pydantic.ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    extras = (path for path in unknown_keys(parsed) if not is_known_extra(direction, path))
    return [f"{path} is unknown to the types" for path in dict.fromkeys(extras)]


def form(event):
    """What kind of command or event it is, finer than `type` where one type carries several."""
    kind = event.get("type", "?")
    if kind == "conversation.item.create":
        item = event.get("item", {})
        return f"{kind} ({' '.join(filter(None, (item.get('role'), item.get('type'))))})"
    if kind == "response.create":
        return f"{kind} (with metadata)" if (event.get("response") or {}).get("metadata") else f"{kind} (bare)"
    return kind


class Checked:
    """Counts by form, and what was wrong, with its place."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.counts = collections.Counter()
        self.findings = []
        self.wrong = 0

    def take(self, direction, event, place):
        self.counts[form(event) if isinstance(event, dict) else "?"] += 1
        found = problems(direction, event, self.protocol)
        self.wrong += bool(found)
        for problem in found:
            if len(self.findings) < MAX_FINDINGS and not any(f.endswith(problem) for f in self.findings):
                self.findings.append(f"{place}: {problem}")

    def total(self):
        return sum(self.counts.values())


def lines(path):
    with open(path, encoding="utf-8") as log:
        return [json.loads(line) for line in log]


def check(paths, directions=("in", "out"), protocol="realtime"):
    """One verdict a direction over every log."""
    checked = {direction: Checked(protocol) for direction in directions}
    for path in paths:
        for number, line in enumerate(lines(path), 1):
            if line["dir"] in checked:
                checked[line["dir"]].take(line["dir"], line["event"], f"{path}:{number}")
    return checked


def faults_are_found():
    """The check itself: known faults must be found, or a pass means nothing. Returns those that were not."""
    cancel = {"type": "response.cancel", "event_id": "e", "response_id": "r"}
    update = {"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"format": {"type": "audio/pcmu"}}}}}
    done = {"type": "response.done", "event_id": "e", "response": {"status": "cancelled", "status_details": {"reason": "turn_detected"}}}
    sound = [("in", cancel), ("in", update), ("out", done)]
    phase = {"type": "message", "role": "assistant", "content": [], "phase": "commentary"}
    sound.append(("out", {"type": "conversation.item.added", "event_id": "e", "item": phase}))
    broken = [
        ("in", cancel | {"item_id": "i"}),
        ("in", {"type": "response.cancelled"}),
        ("in", {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0}),
        ("in", {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": "now"}),
        ("in", {"type": "session.update", "session": update["session"] | {"input_audio_format": "g711_ulaw"}}),
        ("in", {"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"format": {"type": "audio/ulaw"}}}}}),
        ("out", {"type": "response.audio.delta", "event_id": "e"}),
        ("out", {"type": "response.done", "event_id": "e", "response": {"status": "stopped"}}),
        ("out", {"type": "conversation.item.added", "event_id": "e", "item": phase | {"mood": "glad"}}),
    ]
    nested = {"type": "response.output_item.done", "output_index": 0, "sequence_number": 1}
    call = {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}", "status": "completed"}
    run = {"type": "response.event", "event_id": "e", "event": nested | {"item": call}}
    start = {"type": "session.start", "session": {"model": "gpt-live-1"}}
    live_sound = [("out", run), ("in", start), ("in", {"type": "response.create"})]
    live_broken = [
        ("out", run | {"event": nested}),
        ("out", run | {"event": nested | {"item": call | {"mood": "glad"}}}),
        ("in", {"type": "session.start", "session": {"model": "gpt-live-1", "voice": "marin"}}),
        ("in", {"type": "response.create", "response": {}}),
        ("in", cancel),
    ]
    cases = [("realtime", sound, broken), ("live", live_sound, live_broken)]
    missed = []
    for protocol, good, bad in cases:
        missed += [f"refused though sound: {p}" for d, event in good for p in problems(d, event, protocol)]
        missed += [f"not noticed: {json.dumps(event)}" for d, event in bad if not problems(d, event, protocol)]
    return missed


if __name__ == "__main__":
    import sys

    missed = faults_are_found()
    protocol, *paths = sys.argv[1:]
    checked = check(paths, protocol=protocol)
    for direction, one in checked.items():
        print(f"{direction}: {one.total()} events, {len(one.counts)} kinds, {one.wrong} wrong")
        for name, count in sorted(one.counts.items()):
            print(f"  {count:7} {name}")
        for finding in one.findings:
            print(f"  ! {finding}")
    print(*missed, sep="\n")
    sys.exit(bool(missed) or any(one.wrong for one in checked.values()))

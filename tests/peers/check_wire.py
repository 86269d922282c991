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
from openai.types import realtime

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


CLASSES = {"in": classes(realtime.RealtimeClientEvent), "out": classes(realtime.RealtimeServerEvent)}


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


def problems(direction, event):
    """What the types have against one event."""
    kind = event.get("type") if isinstance(event, dict) else None
    known = CLASSES[direction].get(kind)
    if known is None:
        return [f"{kind!r} is no event of the {'client' if direction == 'in' else 'server'}"]
    found = misfits(known, direction, event)
    if kind in SESSION_EVENTS:
        found += misfits(realtime.RealtimeSessionCreateResponse, direction, event.get("session"))
    return [f"{kind}: {misfit}" for misfit in found]


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

    def __init__(self):
        self.counts = collections.Counter()
        self.findings = []
        self.wrong = 0

    def take(self, direction, event, place):
        self.counts[form(event) if isinstance(event, dict) else "?"] += 1
        found = problems(direction, event)
        self.wrong += bool(found)
        for problem in found:
            if len(self.findings) < MAX_FINDINGS and not any(f.endswith(problem) for f in self.findings):
                self.findings.append(f"{place}: {problem}")

    def total(self):
        return sum(self.counts.values())


def lines(path):
    with open(path, encoding="utf-8") as log:
        return [json.loads(line) for line in log]


def check(paths, directions=("in", "out")):
    """One verdict a direction over every log."""
    checked = {direction: Checked() for direction in directions}
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
    missed = [f"refused though sound: {p}" for d, event in sound for p in problems(d, event)]
    return missed + [f"not noticed: {json.dumps(event)}" for d, event in broken if not problems(d, event)]


if __name__ == "__main__":
    import sys

    missed = faults_are_found()
    checked = check(sys.argv[1:])
    for direction, one in checked.items():
        print(f"{direction}: {one.total()} events, {len(one.counts)} kinds, {one.wrong} wrong")
        for name, count in sorted(one.counts.items()):
            print(f"  {count:7} {name}")
        for finding in one.findings:
            print(f"  ! {finding}")
    print(*missed, sep="\n")
    sys.exit(bool(missed) or any(one.wrong for one in checked.values()))

"""Our server beside the reference bridge: the same caller and the same model script for both, and what each told the model
that was heard against what the caller's telephone really played."""

import concurrent.futures
import contextlib
import dataclasses
import json
import statistics

import check_wire
import our_server
import processes
from our_server import AUTH_TOKEN, PUBLIC_URL
from processes import Failed

# The service bursts; as fast as the simulated model does by itself.
SPEED = 8
CALL_S = 150
# Where the caller takes the floor, see bridge/caller.toml.
INTERRUPTIONS = (
    "greeting, at a third",
    "second line, hardly begun and still generated",
    "third line, at two thirds",
    "fourth line, at half; marks come 300 ms late",
    "fifth line, close to its end",
)
# Marks are 200 ms apart and a truncation never claims more than was played: docs/peers.md says where this comes from.
MOST_BEHIND_MS = 250
LATE_MARKS_MS = 300
LATE = 3


@dataclasses.dataclass
class Call:
    """One bridge's call, from both ends."""

    played: list
    told: list
    dropped: list
    stopped_after: list
    marks: int
    cancels: int
    errors: list
    spoken: list
    booked: bool
    wire_log: object


def call(place, name, bridge):
    """Plays the call over a bridge: a context that yields HOST:PORT, given the model's address."""
    wire_log = place.scratch / f"{name}.wire.jsonl"
    with processes.model(place, place.sources / "bridge/model.toml", wire_log, SPEED) as model_url:
        with bridge(place, model_url) as address:
            command = [str(place.program), "sim", "phone", "--script", str(place.sources / "bridge/caller.toml")]
            command += ["--url", f"{PUBLIC_URL}/twilio/voice", "--connect", address, "--auth-token", AUTH_TOKEN, "--json"]
            code, told, _ = processes.run(command, CALL_S, place.scratch / f"{name}.phone.log")
    (place.scratch / f"{name}.phone.json").write_text(told, encoding="utf-8")
    if code:
        raise Failed(f"{name}: the call did not end well: {processes.last_line(place.scratch / f'{name}.phone.log')}")
    return judge(json.loads(told), check_wire.lines(wire_log), wire_log)


def judge(phone, log, wire_log):
    if phone["timed_out_steps"]:
        raise Failed(f"the caller waited in vain in steps {phone['timed_out_steps']} ({wire_log.stem})")
    clears = phone["clears"]
    played, since = [], 0
    for clear in clears:
        played.append(heard_ms(phone["heard"], since, clear["at_us"]))
        since = clear["at_us"]
    got = [line["event"] for line in log if line["dir"] == "in"]
    sent = [line["event"] for line in log if line["dir"] == "out"]
    told = [event.get("audio_end_ms", 0) for event in got if event["type"] in TRUNCATIONS]
    spoken = [r["response"] for r in sent if r["type"] == "response.done"]
    return Call(
        played=played,
        told=told,
        dropped=[clear["dropped_ms"] for clear in clears],
        stopped_after=[clear["caller_spoke_ms"] for clear in clears],
        marks=len(phone["marks"]),
        cancels=sum(event["type"] == "response.cancel" for event in got),
        errors=[event["error"]["code"] for event in sent if event["type"] == "error"],
        spoken=[r["status"] for r in spoken],
        booked=any(item.get("item", {}).get("type") == "function_call_output" for item in got),
        wire_log=wire_log,
    )


# An item of which nothing was heard is deleted.
TRUNCATIONS = ("conversation.item.truncate", "conversation.item.delete")


def heard_ms(spans, from_us, to_us):
    inside = (min(s["at_us"] + s["lasted_us"], to_us) - max(s["at_us"], from_us) for s in spans)
    return round(sum(us for us in inside if us > 0) / 1000)


@contextlib.contextmanager
def reference(place, model_url):
    """OpenAI's Twilio transport for its agents SDK."""
    command = [*place.interpreter("js"), place.script("js", "twilio_transport.mjs"), model_url]
    with processes.running(command, r"^listening on (\d+)", place.scratch / "reference.log") as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def ours(place, model_url):
    with our_server.serving(place, "answerback", model_url) as server:
        yield server.address


def compare(place):
    """Both calls at the same time; returns (our call, the reference's)."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        one = pool.submit(call, place, "answerback", ours)
        other = pool.submit(call, place, "reference", reference)
        return one.result(), other.result()


def broken_promises(us):
    """What our server owes in this call, whatever the reference does."""
    wrong = []
    if len(us.played) != len(INTERRUPTIONS) or len(us.told) != len(INTERRUPTIONS):
        return [f"{len(us.played)} clears and {len(us.told)} truncations for {len(INTERRUPTIONS)} interruptions"]
    for n, (played, told) in enumerate(zip(us.played, us.told)):
        most = MOST_BEHIND_MS + (LATE_MARKS_MS if n == LATE else 0)
        if told > played:
            wrong.append(f"{INTERRUPTIONS[n]}: told {told} ms, played {played}: claims what was not heard")
        elif played - told > most:
            wrong.append(f"{INTERRUPTIONS[n]}: told {told} ms, played {played}: more than {most} ms behind")
    if us.errors:
        wrong.append(f"the model answered with {us.errors}")
    if not us.booked:
        wrong.append("nothing was booked")
    return wrong


def table(us, them, reference_name):
    rows = [
        f"| the caller takes the floor in | Answerback: played | told | off | {reference_name}: played | told | off |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for n, where in enumerate(INTERRUPTIONS):
        cells = [cell for one in (us, them) for cell in truncation(one, n)]
        rows.append(f"| {where} | {' | '.join(cells)} |")
    rows += [
        "",
        f"| | Answerback | {reference_name} |",
        "|---|---:|---:|",
        f"| largest claim of what was not played, ms | {over(us)} | {over(them)} |",
        f"| median distance of told from played, ms | {distance(us)} | {distance(them)} |",
        f"| clears | {len(us.played)} | {len(them.played)} |",
        f"| thrown away by them in the carrier's buffer, ms | {sum(us.dropped)} | {sum(them.dropped)} |",
        f"| from the caller's voice to the clear, median ms | {median(us.stopped_after)} | {median(them.stopped_after)} |",
        f"| marks | {us.marks} | {them.marks} |",
        f"| response.cancel sent | {us.cancels} | {them.cancels} |",
        f"| responses completed / cancelled | {ends(us)} | {ends(them)} |",
        f"| errors of the model | {len(us.errors)} | {len(them.errors)} |",
    ]
    return "\n".join(rows)


def truncation(one, n):
    played = one.played[n] if n < len(one.played) else None
    told = one.told[n] if n < len(one.told) else None
    off = f"{told - played:+d}" if None not in (played, told) else "–"
    return ["–" if value is None else str(value) for value in (played, told)] + [off]


def over(one):
    return max((max(0, told - played) for played, told in zip(one.played, one.told)), default=0)


def distance(one):
    return median([abs(told - played) for played, told in zip(one.played, one.told)])


def median(values):
    known = [value for value in values if value is not None]
    return round(statistics.median(known)) if known else "–"


def ends(one):
    return f"{one.spoken.count('completed')} / {one.spoken.count('cancelled')}"

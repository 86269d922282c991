"""Calls of our whole server with a Live service that is not our simulator (`peers/live_service.py`): one for each situation in
which an answer is owed. Judged by what the caller heard, what the server published, what was booked and what went over the wire."""

import concurrent.futures
import contextlib
import dataclasses
import json
import threading
import time
import urllib.request

import check_wire
import numpy
import our_server
import processes
from processes import Failed

CALL_S = 90
# A server, a service, a booking system and a phone each, and a core or two for all.
AT_ONCE = 4
# The server's frame, and one of this ear.
WHOLE_WITHIN_MS = 60
EAR_MS = 20
AUDIBLE = 500
# Less of one tone is a click.
SURE_MS = 60


@dataclasses.dataclass(frozen=True)
class Situation:
    name: str
    story: str
    # The lines that the caller hears, in order; `…` after one that is cut off.
    hears: tuple
    # After the request; each step as the phone takes it.
    caller: tuple
    commit_ms: int = 200
    effects: int = 1
    outputs: int = 1
    creates: int = 1
    refused: int = 0


def heard(ms):
    return f"wait_for_agent = {{ heard_ms = {ms}, timeout_ms = 30000 }}"


def wait(ms):
    return f"wait = {{ ms = {ms} }}"


def says(voice):
    return f'say = {{ file = "builtin:{voice}" }}'


SITUATIONS = (
    Situation("one-tool", "B1: one tool, one answer", ("greeting", "answer"), (heard(1700),)),
    Situation(
        "two-results", "B2: two results, one answer", ("greeting", "answer"), (heard(1700),), effects=2, outputs=2
    ),
    Situation(
        "interrupted",
        "B3: the caller interrupts a service that speaks on",
        ("greeting", "answer…", "other", "again"),
        (heard(600), says("caller_hello_again"), heard(2250)),
    ),
    # Whether a failed continuation may be run again is nowhere written: it is tried, and here it may not.
    Situation("continuation-fails", "B4: the continuation fails", ("greeting", "news"), (heard(1500),), refused=2),
    Situation(
        "late-words",
        "B5: words come late while a booking is owed",
        ("greeting", "moment", "news"),
        (heard(2450),),
        commit_ms=4500,
    ),
    Situation(
        "run-fails-first",
        "B6: the run fails before its tool ends",
        ("greeting", "moment", "news"),
        (heard(2450),),
        commit_ms=4500,
        outputs=0,
        creates=0,
    ),
    Situation(
        "answers-unasked", "B7: the service goes on unasked", ("greeting", "answer"), (heard(1700),), creates=0
    ),
    Situation("preamble", "B8: a preamble and its answer", ("greeting", "moment", "answer"), (heard(2650),)),
    Situation(
        "second-message",
        "B9: a second message while a booking is owed",
        ("greeting", "moment", "other", "news"),
        (heard(900), wait(700), says("caller_hello_again"), heard(2450)),
        commit_ms=8000,
    ),
)


def play(place):
    """Every situation; returns (in words, seconds, the wire logs)."""
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        calls = [(situation, pool.submit(call, place, situation)) for situation in SITUATIONS]
        wrong, logs = [], []
        for situation, playing in calls:
            problems, log = playing.result()
            wrong += [f"{situation.name}: {problem}" for problem in problems]
            logs.append(log)
    if wrong:
        raise Failed("; ".join(wrong[:4]))
    return f"{len(SITUATIONS)} situations in calls of the whole server", time.monotonic() - began, logs


def call(place, situation):
    name = f"live-{situation.name}"
    wire_log, recording = place.scratch / f"{name}.wire.jsonl", place.scratch / f"{name}.wav"
    script = place.scratch / f"{name}.caller.toml"
    steps = ("wait_for_agent = { quiet_ms = 1000 }", says("caller_request"), *situation.caller, wait(1800), "hang_up = {}")
    script.write_text("".join(f"[[steps]]\n{step}\n" for step in steps), encoding="utf-8")
    command = [*place.interpreter("python"), place.script("python", "live_service.py"), situation.name, str(wire_log)]
    env = {
        "ANSWERBACK__MODEL__PROVIDER": "gpt_live",
        "ANSWERBACK__MODEL__MODEL": "gpt-live-1",
        "ANSWERBACK__MODEL__BACKEND_MODEL": "a-backend",
    }
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(
            processes.running(command, r"^listening on (\d+)", place.scratch / f"{name}.service.log")
        )
        url = f"ws://127.0.0.1:{port}/v1"
        server = stack.enter_context(our_server.serving(place, name, url, situation.commit_ms, env))
        onlooker = stack.enter_context(looking(server.address))
        command = [str(place.program), "sim", "phone", "--script", str(script), "--json", "--record", str(recording)]
        command += ["--url", f"{our_server.PUBLIC_URL}/twilio/voice", "--connect", server.address]
        command += ["--auth-token", our_server.AUTH_TOKEN]
        log = place.scratch / f"{name}.phone.log"
        code, told, _ = processes.run(command, CALL_S, log)
        bookings = server.bookings.read_text(encoding="utf-8").splitlines() if server.bookings.exists() else []
    if code:
        return [f"the call did not end well: {processes.last_line(log)}"], wire_log
    problems = [f"the caller waited in vain in steps {s}" for s in [json.loads(told)["timed_out_steps"]] if s]
    problems += judge(situation, lines_in(recording), onlooker, len(bookings))
    return problems + judge_wire(situation, check_wire.lines(wire_log)), wire_log


@contextlib.contextmanager
def looking(address):
    """The server's own live events, of which those that matter here are kept: (name, detail)."""
    request = urllib.request.Request(f"http://{address}/api/v1/events")
    request.add_header("Authorization", f"Bearer {our_server.ADMIN_TOKEN}")
    # A proxy of whoever runs this is for other servers.
    answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=CALL_S)
    seen = []

    def read():
        # It ends with the server.
        with contextlib.suppress(OSError, ValueError):
            for line in answer:
                if line.startswith(b"data: "):
                    take(json.loads(line[6:]), seen)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    yield seen


def take(event, seen):
    command = (event.get("fields") or {}).get("command") if event.get("name") == "step" else None
    if not isinstance(command, dict):
        return
    if state := command.get("publish_state"):
        seen.append(("state", state["state"]))
    work = command.get("work")
    if isinstance(work, dict) and "propose" in work:
        seen.append(("proposed", work["propose"]["tool"]))
    if isinstance(work, dict) and "save_delivery" in work:
        change = work["save_delivery"]["change"]
        seen.append((change if isinstance(change, str) else next(iter(change)), ""))


def judge(situation, sounded, seen, bookings):
    wrong = []
    told = tuple(line if whole else f"{line}…" for line, whole in sounded)
    if told != situation.hears:
        wrong.append(f"the caller heard {', '.join(told)} and not {', '.join(situation.hears)}")
    if bookings != situation.effects:
        wrong.append(f"{bookings} bookings and not {situation.effects}")
    names = [name for name, _ in seen]
    if names.count("heard") != 1:
        return wrong + [f"{names.count('heard')} completions were taken for heard: {names}"]
    if "proposed" not in names:
        return wrong + ["no tool was proposed"]
    owed = seen[names.index("proposed") : names.index("heard")]
    if ("state", "listening") in owed:
        wrong.append("listening was published while an answer was owed")
    if [detail for name, detail in seen if name == "state"][-1:] != ["listening"]:
        wrong.append("it never was free again")
    return wrong


def judge_wire(situation, log):
    got = [line["event"] for line in log if line["dir"] == "in"]
    errors = [line["event"]["error"]["message"] for line in log if line["dir"] == "out" and line["event"]["type"] == "error"]
    outputs = [e for e in got if e["type"] == "response.item.create" and e["item"]["type"] == "function_call_output"]
    creates = sum(event["type"] == "response.create" for event in got)
    wrong = []
    if len(errors) != situation.refused:
        wrong.append(f"the service refused {errors}")
    if len(outputs) != situation.outputs:
        wrong.append(f"{len(outputs)} outputs and not {situation.outputs}")
    if creates != situation.creates + situation.refused:
        wrong.append(f"{creates} creates and not {situation.creates + situation.refused}")
    return wrong


# ---- the ear ------------------------------------------------------------------------------------------------------------


def lines_in(recording):
    """(line, whether it was heard to its end), in order, by the tones of the lines."""
    from peers.live_service import LINEAR, LINES

    data = recording.read_bytes()
    start = data.index(b"data") + 8
    samples = LINEAR[numpy.frombuffer(data[start : start + int.from_bytes(data[start - 4 : start], "little")], dtype=numpy.uint8)]
    frames = samples[: len(samples) // (EAR_MS * 8) * EAR_MS * 8].reshape(-1, EAR_MS * 8).astype(float)
    by_hertz = {hertz: line for line, (hertz, _, _) in LINES.items()}
    found = []
    for frame in frames:
        if numpy.sqrt((frame**2).mean()) < AUDIBLE:
            continue
        # Bins are 50 Hz apart, and all tones are multiples of it.
        hertz = int(numpy.abs(numpy.fft.rfft(frame)).argmax()) * (1000 // EAR_MS)
        line = by_hertz.get(hertz, f"{hertz} Hz")
        if not found or found[-1][0] != line:
            found.append([line, 0])
        found[-1][1] += EAR_MS
    found = [part for part in found if part[1] >= SURE_MS]
    # A pause of the line that the voice did not make: the same tone goes on after it.
    for n in range(len(found) - 1, 0, -1):
        if found[n][0] == found[n - 1][0]:
            found[n - 1][1] += found.pop(n)[1]
    whole = {line: ms - WHOLE_WITHIN_MS for line, (_, ms, _) in LINES.items()}
    return [(line, ms >= whole.get(line, 0)) for line, ms in found]

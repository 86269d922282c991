"""A Live service that our server calls: `live_service.py SITUATION WIRE_LOG`. Its events are made of the types of LiveKit's
client, leaner than the vendor's; what it asks of a client are the rules of the vendor's guides. It knows nothing of our simulator.

Each line that it speaks is a tone of its own, so that what the caller heard can be told apart in a recording (`live_calls.py`)."""

import asyncio
import base64
import json
import pathlib
import sys
import time

import numpy
import websockets
from livekit.agents.llm._realtime import gpt_live_types as types

FRAME_MS = 40
SILENCE = 0xFF
# Energy of 16-bit samples above which the caller speaks, and for how long until the service takes it for a turn and its end.
VOICED_RMS = 300
TURN_BEGINS_MS = 120
TURN_ENDS_MS = 600
# From knowing what to say to the first sound, and between two lines.
THINKS_MS = 400
PAUSE_MS = 1000
APPEND_CHARACTERS = 2000

# By line: Hz, ms, and the words.
LINES = {
    "greeting": (500, 1000, "Good evening, the Blue Door."),
    "answer": (700, 1800, "Your table is booked under B seven."),
    "again": (900, 1400, "As I said, it is booked."),
    "moment": (1100, 1000, "One moment, I am on it."),
    "other": (1300, 1000, "Yes, behind the house."),
    "news": (1500, 1600, "By the way, you are booked now."),
    "unrelated": (1700, 1200, "What lovely weather."),
}
BOOKINGS = ({"party_size": 2, "time": "21:00"}, {"party_size": 4, "time": "20:00"})


class Situation:
    """What this service does that another would not."""

    def __init__(self, name):
        self.calls = 2 if name == "two-results" else 1
        self.yields = name != "interrupted"
        self.fails_continuations = 1 if name == "continuation-fails" else 0
        self.words_late_ms = 2500 if name == "late-words" else 0
        self.fails_after_calls = name == "run-fails-first"
        self.goes_on_unasked = name == "answers-unasked"
        self.preamble = name == "preamble"


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Session:
    def __init__(self, socket, situation, log):
        self.socket, self.situation, self.log = socket, situation, log
        self.began = time.monotonic()
        self.started = False
        self.format_is_right = False
        # (line, bytes) that are being said, and what is to be said later: (when, line).
        self.saying, self.planned, self.pause_ms = None, [], 0
        self.turns, self.voiced_ms, self.quiet_ms, self.in_turn = 0, 0, 0, False
        # By call: its run, and whether it has an output.
        self.calls, self.thrown_away = {}, set()
        self.submitted = self.running = False
        self.directions = ""
        self.runs = 0
        self.tasks = set()

    def ms(self):
        return round((time.monotonic() - self.began) * 1000)

    def note(self, direction, event):
        shown = {k: f"({len(v)} characters)" if k in ("delta", "audio") and len(v) > 100 else v for k, v in event.items()}
        self.log.write(json.dumps({"us": self.ms() * 1000, "session": 1, "dir": direction, "event": shown}) + "\n")
        self.log.flush()

    async def send(self, event):
        event = event if isinstance(event, dict) else event.model_dump(exclude_none=True)
        self.note("out", event)
        await self.socket.send(json.dumps(event))

    def later(self, coroutine):
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # ---- what it is told ------------------------------------------------------------------------------------------------

    async def listen(self):
        async for text in self.socket:
            event = json.loads(text)
            self.note("in", event)
            try:
                await self.obey(event)
            except Refused as refusal:
                body = types.ErrorBody(
                    type="invalid_request_error", code=refusal.code, message=str(refusal), client_event_id=event.get("event_id")
                )
                await self.send(types.ErrorEvent(error=body))
            if event["type"] == "session.close":
                await self.send(types.SessionClosedEvent(reason="close_requested"))
                return

    async def obey(self, event):
        kind = event["type"]
        if not self.started and kind != "session.start":
            raise Refused("invalid_event", "the first event must be session.start")
        if kind == "session.start":
            # What the client asked for is shown as it was asked for.
            await self.start(types.SessionStartEvent.model_validate(event), event["session"])
        elif kind == "session.input_audio.append":
            self.hear(base64.b64decode(event["audio"], validate=True))
        elif kind in ("session.commentary.append", "session.thinking.append", "session.instructions.append"):
            await self.append(event, kind.split(".")[1])
        elif kind == "response.item.create":
            self.take_item(event["item"])
        elif kind == "response.create":
            if len(event) > 2 or (len(event) == 2 and "event_id" not in event):
                raise Refused("unknown_parameter", "response.create has no body")
            self.continue_runs()
        elif kind != "session.close":
            raise Refused("invalid_event", f"{kind} is not served here")

    async def start(self, start, shown):
        if self.started:
            raise Refused("invalid_event", "the session has started already")
        if start.session.audio is None or start.session.audio.format != types.AudioFormat(type="audio/pcmu", rate=8000):
            raise Refused("invalid_value", "this service is called in telephone μ-law")
        if start.session.delegation is None or not start.session.delegation.responses.model:
            raise Refused("missing_required_parameter", "session.delegation.responses.model")
        self.started = True
        resource = shown | {"id": "live_peer", "status": "active", "expires_at": int(time.time()) + 7200}
        await self.send({"type": "session.started", "session": resource})
        self.later(self.speak())

    async def append(self, event, how):
        if "delegation_id" not in event or event["delegation_id"] is not None:
            raise Refused("invalid_value", "delegation_id must be there, and null where the backend does the work")
        if not event["content"] or len(event["content"]) > APPEND_CHARACTERS:
            raise Refused("invalid_value", "content is limited to 500 tokens")
        appended = {"type": f"session.{how}.appended", "start_ms": self.ms(), "end_ms": self.ms()}
        await self.send(appended | {"client_event_id": event.get("event_id")})
        if how == "commentary":
            self.say(line_for(event["content"]), THINKS_MS)

    # ---- turns ----------------------------------------------------------------------------------------------------------

    def hear(self, mulaw):
        samples = LINEAR[numpy.frombuffer(mulaw, dtype=numpy.uint8)].astype(numpy.float64)
        voiced = numpy.sqrt((samples**2).mean()) > VOICED_RMS if len(samples) else False
        ms = len(mulaw) / 8
        self.voiced_ms, self.quiet_ms = (self.voiced_ms + ms, 0) if voiced else (self.voiced_ms, self.quiet_ms + ms)
        if not self.in_turn and self.voiced_ms >= TURN_BEGINS_MS:
            self.in_turn = True
            if self.situation.yields:
                self.saying, self.planned = None, []
        if self.quiet_ms >= TURN_ENDS_MS:
            if self.in_turn:
                self.later(self.turn_ended())
            self.in_turn, self.voiced_ms = False, 0

    async def turn_ended(self):
        self.turns += 1
        words = ["Hello, I'd like to book a table for two at nine tonight, please.", "Do you have parking?"][min(self.turns, 2) - 1]
        at = self.ms()
        await self.words("session.input_transcript.delta", words, at - 1000, at)
        if self.turns > 1:
            return self.say("other", THINKS_MS)
        if self.situation.preamble:
            self.say("moment", THINKS_MS)
        await self.send(
            types.SessionDelegationCreatedEvent(delegation=types.DelegationInfo(id="dlg_1", target="responses"))
        )
        await self.run_that_calls()

    # ---- the backend ----------------------------------------------------------------------------------------------------

    async def nested(self, kind, **parts):
        event = types.ResponsesEvent(type=kind, **parts)
        await self.send(types.ResponseEventEnvelope(delegation_id="dlg_1", event=event))

    async def begin(self):
        self.runs += 1
        run = types.ResponseSnapshot(id=f"resp_{self.runs}")
        await self.nested("response.created", response=run)
        await asyncio.sleep(0.3)
        await self.nested("response.output_item.done", item=types.OutputItem(id="rs", type="reasoning"))
        return run

    async def run_that_calls(self):
        self.running = True
        run = await self.begin()
        for n in range(self.situation.calls):
            call = f"call_{run.id}_{n}"
            self.calls[call] = False
            arguments = json.dumps(BOOKINGS[n])
            item = types.OutputItem(id=f"fc_{n}", type="function_call", call_id=call, name="book_table", arguments=arguments)
            await self.nested("response.output_item.added", item=item.model_copy(update={"status": "in_progress", "arguments": ""}))
            await self.nested("response.output_item.done", item=item.model_copy(update={"status": "completed"}))
        if self.situation.fails_after_calls:
            await asyncio.sleep(0.3)
            self.thrown_away |= set(self.calls)
            self.calls.clear()
            await self.fail(run)
        else:
            await self.nested("response.completed", response=run)
        self.running = False

    async def fail(self, run):
        error = {"code": "server_error", "message": "The model failed."}
        await self.nested("response.failed", response=run.model_copy(update={"error": error}))

    def take_item(self, item):
        if item.get("type") != "function_call_output":
            self.directions += json.dumps(item.get("content"))
            return
        call = item["call_id"]
        if call in self.thrown_away:
            raise Refused("invalid_value", f"{call} belongs to a response that did not complete")
        if self.calls.get(call) is not False:
            raise Refused("invalid_value", f"{call} waits for no output")
        self.calls[call] = True
        self.submitted = True
        if self.situation.goes_on_unasked and all(self.calls.values()):
            self.continue_runs()

    def continue_runs(self):
        if self.running:
            raise Refused("invalid_value", "a response of the backend is in progress")
        if missing := [call for call, answered in self.calls.items() if not answered]:
            raise Refused("invalid_value", f"no tool output found for {', '.join(missing)}")
        if not self.submitted:
            raise Refused("invalid_value", "nothing to continue with")
        line = "moment" if "not confirmed" in self.directions else "answer"
        self.calls, self.submitted, self.running, self.directions = {}, False, True, ""
        self.later(self.run_that_answers(line))

    async def run_that_answers(self, line):
        run = await self.begin()
        if self.situation.fails_continuations > 0:
            self.situation.fails_continuations -= 1
            await self.fail(run)
        else:
            await self.nested("response.output_item.done", item=types.OutputItem(id="msg", type="message", status="completed"))
            await self.nested("response.completed", response=run)
            self.say(line, THINKS_MS)
        self.running = False

    # ---- the voice ------------------------------------------------------------------------------------------------------

    def say(self, line, in_ms):
        self.planned.append((self.ms() + in_ms, line))
        self.planned.sort()

    async def speak(self):
        """The stream out: real time, silence included."""
        next_at = time.monotonic()
        while True:
            await self.send(types.OutputAudioDeltaEvent(delta=base64.b64encode(self.next_frame()).decode()))
            next_at += FRAME_MS / 1000
            await asyncio.sleep(max(0, next_at - time.monotonic()))

    def next_frame(self):
        size = FRAME_MS * 8
        if self.saying is None and self.pause_ms > 0:
            self.pause_ms -= FRAME_MS
        elif self.saying is None and self.planned and self.planned[0][0] <= self.ms():
            line = self.planned.pop(0)[1]
            self.saying = tone(line)
            at, text = self.ms(), LINES[line][2]
            self.later(self.words("session.output_transcript.delta", text, at, at + LINES[line][1], self.situation.words_late_ms))
        if self.saying is None:
            return bytes([SILENCE]) * size
        frame, self.saying = self.saying[:size], self.saying[size:] or None
        if self.saying is None:
            self.pause_ms = PAUSE_MS
        return frame.ljust(size, bytes([SILENCE]))

    async def words(self, kind, text, from_ms, to_ms, late_ms=0):
        """Word by word, each with its part of the time."""
        await asyncio.sleep(late_ms / 1000)
        parts = text.split(" ")
        each = (to_ms - from_ms) / len(parts)
        for n, word in enumerate(parts):
            start, end = round(from_ms + n * each), round(from_ms + (n + 1) * each)
            await self.send(types.TranscriptDeltaEvent(type=kind, delta=word if n == 0 else f" {word}", start_ms=start, end_ms=end))


def line_for(content):
    """What the model makes of what it is given to say."""
    for part, line in (("Greet", "greeting"), ("not confirmed", "moment"), ("interrupted", "again"), ("ommitted", "news")):
        if part in content:
            return line
    return "unrelated"


def tone(line):
    hertz, ms, _ = LINES[line]
    wave = 6000 * numpy.sin(2 * numpy.pi * hertz * numpy.arange(ms * 8) / 8000)
    return mulaw(wave.astype(numpy.int32))


def mulaw(samples):
    """G.711."""
    magnitude = numpy.minimum(numpy.abs(samples), 32635) + 132
    exponent = numpy.floor(numpy.log2(magnitude)).astype(numpy.int32) - 7
    mantissa = (magnitude >> (exponent + 3)) & 0x0F
    return (~((samples < 0) * 0x80 | exponent << 4 | mantissa) & 0xFF).astype(numpy.uint8).tobytes()


def linear_table():
    codes = ~numpy.arange(256) & 0xFF
    magnitude = (((codes & 0x0F) << 3) + 132 << (codes >> 4 & 7)) - 132
    return numpy.where(codes & 0x80, -magnitude, magnitude)


LINEAR = linear_table()


async def main(situation, wire_log):
    with open(wire_log, "w", encoding="utf-8") as log:

        async def serve(socket):
            if socket.request.path != "/v1/live/sessions" or not socket.request.headers.get("Authorization", "").startswith("Bearer "):
                return await socket.close(1008, "no such route, or no key")
            session = Session(socket, Situation(situation), log)
            try:
                await session.listen()
            except websockets.ConnectionClosed:
                pass
            finally:
                for task in session.tasks:
                    task.cancel()

        async with websockets.serve(serve, "127.0.0.1", 0, max_size=2**20) as server:
            print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
            await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], pathlib.Path(sys.argv[2])))
    except KeyboardInterrupt:
        pass

"""What the conversations of the Python peers share: the steps they come through, and a caller on a line."""

import asyncio
import json
import pathlib
import time

# Every peer comes through these; run.py refuses a report in which one is missing.
STEPS = ("configured", "greeted", "understood", "tool called", "followed up", "interrupted", "answered", "ended")

INSTRUCTIONS = "You are the host of a small restaurant, on the telephone with a guest."
BOOK_TABLE = {
    "type": "function",
    "name": "book_table",
    "description": "Books a table.",
    "parameters": {
        "type": "object",
        "properties": {"party_size": {"type": "integer"}, "time": {"type": "string"}},
        "required": ["party_size", "time"],
    },
}
BOOKED = json.dumps({"status": "committed", "reference": "B7"})

# Nothing in a conversation takes longer, unless it hangs.
PATIENCE_S = 15.0


class Report:
    """One line of JSON on standard output, whatever became of it."""

    def __init__(self, peer):
        self.told = {"peer": peer, "steps": {}}

    def came_through(self, step, detail):
        assert step in STEPS, step
        self.told["steps"][step] = detail

    def print(self):
        print(json.dumps(self.told), flush=True)


def demand(holds, what):
    if not holds:
        raise AssertionError(what)


class Inbox:
    """What came, in order; each wait goes on where the last one ended."""

    def __init__(self):
        self.came = []
        self.next = 0
        self.more = asyncio.Event()

    def put(self, event):
        self.came.append(event)
        self.more.set()

    async def until(self, what, fits):
        """The first event that fits, of those not yet looked at."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.next < len(self.came):
                    event = self.came[self.next]
                    self.next += 1
                    if fits(event):
                        return event
                self.more.clear()
                try:
                    await self.more.wait()
                except asyncio.CancelledError:
                    raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}; came: {self.kinds()}") from None

    def kinds(self):
        return [getattr(event, "type", type(event).__name__) for event in self.came[-8:]]


class Line:
    """A telephone line that is open all the time: 20 ms of 8 kHz μ-law after the other, silence when nobody speaks."""

    FRAME = 160
    SILENCE = b"\xff" * FRAME

    def __init__(self, voices, send):
        """`send` is awaited with the μ-law of each frame."""
        self.voices = pathlib.Path(voices)
        self.send = send
        self.sound = b""
        self.task = None

    def say(self, name):
        self.sound += (self.voices / f"{name}.ulaw").read_bytes()

    async def __aenter__(self):
        self.task = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def run(self):
        due = time.monotonic()
        while True:
            frame, self.sound = self.sound[: self.FRAME], self.sound[self.FRAME :]
            await self.send(frame.ljust(self.FRAME, b"\xff") if frame else self.SILENCE)
            due += 0.02
            await asyncio.sleep(max(0.0, due - time.monotonic()))


def linear(mulaw):
    """16-bit little-endian samples of G.711 μ-law."""
    return b"".join(LINEAR[byte] for byte in mulaw)


def one_sample(byte):
    byte = ~byte & 0xFF
    level = (((byte & 0x0F) << 3) + 0x84) << ((byte & 0x70) >> 4)
    return ((0x84 - level) if byte & 0x80 else (level - 0x84)).to_bytes(2, "little", signed=True)


LINEAR = [one_sample(byte) for byte in range(256)]

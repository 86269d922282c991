"""The vendor's own Python client on the Live interface, in telephone μ-law: `openai_live.py MODEL_URL VOICES`."""

import asyncio
import base64
import sys

import openai
from conversation import BOOK_TABLE, BOOKED, INSTRUCTIONS, Inbox, Line, Report, demand

TALKED_OVER_AFTER_MS = 1000
SILENCE = 0xFF


async def converse(url, voices, report):
    client = openai.AsyncOpenAI(api_key="peer", websocket_base_url=url)
    async with client.live.connect() as connection:
        inbox, sounds = Inbox(), Sounds()
        reading = asyncio.create_task(read(connection, inbox, sounds))

        async def send(mulaw):
            await connection.session.input_audio.append(audio=base64.b64encode(mulaw).decode())

        def of(kind):
            return inbox.until(kind, lambda event: event.type == kind)

        def nested(kind):
            return inbox.until(kind, lambda event: event.type == "response.event" and event.event["type"] == kind)

        await connection.session.start(
            session={
                "model": "gpt-live-1",
                "instructions": INSTRUCTIONS,
                "audio": {"format": {"type": "audio/pcmu", "rate": 8000}, "output": {"voice": "marin"}},
                "delegation": {
                    "type": "responses",
                    "responses": {"model": "gpt-5.6-luna", "tools": [BOOK_TABLE | {"strict": False}]},
                },
            },
            event_id="the_start",
        )
        started = await of("session.started")
        demand(started.client_event_id == "the_start", "the start is answered by its id")
        report.came_through("configured", started.session.audio.format.type)

        async with Line(voices, send) as line:
            await connection.session.commentary.append(content="Greet the guest.", delegation_id=None, event_id="greet")
            appended = await of("session.commentary.appended")
            demand(appended.client_event_id == "greet", "the append is acknowledged by its id")
            report.came_through("greeted", await words(inbox, "help you?"))
            await sounds.until_silent()

            line.say("caller_request")
            transcript = await words(inbox, "please.", "session.input_transcript.delta")
            report.came_through("understood", transcript)
            delegation = (await of("session.delegation.created")).delegation
            done = await nested("response.output_item.done")
            while done.event["item"]["type"] != "function_call":
                done = await nested("response.output_item.done")
            call = done.event["item"]
            demand(done.delegation_id == delegation.id, "the call belongs to the delegation")
            await nested("response.completed")
            report.came_through("tool called", f"{call['name']} {call['arguments']}")

            output = {"type": "function_call_output", "call_id": call["call_id"], "output": BOOKED}
            await connection.response.item.create(item=output)
            await connection.response.create()
            report.came_through("followed up", await words(inbox, "Your table"))

            heard = sounds.heard_ms
            await sounds.until_heard(heard + TALKED_OVER_AFTER_MS)
            line.say("caller_talk_over")
            await sounds.until_silent()
            heard = sounds.heard_ms - heard
            demand(heard < 5000, f"{heard} ms of 6909 sounded: the model did not yield")
            report.came_through("interrupted", f"the model fell silent by itself after {heard} ms")

            report.came_through("answered", await words(inbox, "window seat wish."))
            await sounds.until_silent()
            # A mistake is told with the id of the event that made it.
            nobodys = output | {"call_id": "call_of_nobody"}
            await connection.response.item.create(item=nobodys, event_id="for_nobody")
            refused = (await of("error")).error
            demand(refused.client_event_id == "for_nobody", refused)
            await connection.session.close()
            closed = await of("session.closed")
            demand(closed.reason == "close_requested", closed.reason)
    await reading
    report.came_through("ended", f"closed on request after {closed.usage.seconds} s")


class Sounds:
    """The continuous voice, told apart from the silence in it."""

    def __init__(self):
        self.heard_ms = 0
        self.quiet_ms = 0

    def take(self, mulaw):
        if any(byte not in (SILENCE, 0x7F) for byte in mulaw):
            self.heard_ms += len(mulaw) // 8
            self.quiet_ms = 0
        else:
            self.quiet_ms += len(mulaw) // 8

    async def until_silent(self):
        self.quiet_ms = 0
        await self.until(lambda: self.quiet_ms >= 500)

    async def until_heard(self, ms):
        await self.until(lambda: self.heard_ms >= ms)

    async def until(self, holds):
        async with asyncio.timeout(15):
            while not holds():
                await asyncio.sleep(0.02)


async def words(inbox, last, kind="session.output_transcript.delta"):
    said = ""
    while last not in said:
        said += (await inbox.until(f"{last!r} after {said!r}", lambda event: event.type == kind)).delta
    return said


async def read(connection, inbox, sounds):
    async for event in connection:
        if event.type == "session.output_audio.delta":
            sounds.take(base64.b64decode(event.delta))
        else:
            inbox.put(event)


if __name__ == "__main__":
    told = Report(f"openai (Python) {openai.__version__}, Live")
    try:
        asyncio.run(converse(sys.argv[1], sys.argv[2], told))
    finally:
        told.print()

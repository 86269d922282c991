"""LiveKit's GPTLiveModel, which speaks and hears 24 kHz: `livekit_live.py MODEL_URL VOICES`. Its session has no public way
to configure it but a whole agent, so the framework's own hooks are called as the framework calls them."""

import asyncio
import importlib.metadata
import sys

import aiohttp
import numpy
from conversation import BOOKED, INSTRUCTIONS, Inbox, Line, Report, demand, linear
from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai.realtime import GPTLiveModel

TALKED_OVER_AFTER_MS = 1000
# Of 16-bit samples; the silence of μ-law is 0.
AUDIBLE = 100


@llm.function_tool
async def book_table(party_size: int, time: str) -> str:
    """Books a table."""
    return BOOKED


async def converse(url, voices, report):
    async with aiohttp.ClientSession() as http:
        model = GPTLiveModel(api_key="peer", base_url=url.replace("ws:", "http:"), http_session=http)
        session = model.session()
        said, heard, calls, errors = Inbox(), Inbox(), Inbox(), []
        session.on("transcript_delta", said.put)
        session.on("input_audio_transcription_completed", heard.put)
        session.on("function_call", calls.put)
        session.on("error", lambda event: errors.append(str(event.error)))
        sounds = Sounds()
        listening = asyncio.create_task(sounds.listen(session.audio_stream))

        async def send(mulaw):
            frame = rtc.AudioFrame(linear(mulaw), sample_rate=8000, num_channels=1, samples_per_channel=len(mulaw))
            session.push_audio(frame)

        await session._update_session(instructions=INSTRUCTIONS, tools=[book_table])
        async with Line(voices, send) as line:
            session._generate_reply(instructions="Greet the guest.")
            greeting = await words(said, "help you?")
            report.came_through("configured", "started by LiveKit, pcm 24 kHz both ways")
            await sounds.until_silent()
            demand(sounds.heard_ms > 2500, f"{sounds.heard_ms} ms of the greeting")
            report.came_through("greeted", f"{sounds.heard_ms} ms: {greeting}")

            line.say("caller_request")
            call = await calls.until("the call", lambda _: True)
            final = await heard.until("the caller's transcript", lambda event: event.transcript.endswith("please."))
            report.came_through("understood", final.transcript)
            report.came_through("tool called", f"{call.name} {call.arguments}")

            output = llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output=BOOKED, is_error=False)
            await session._append_items([output])
            report.came_through("followed up", await words(said, "Your table"))

            heard_ms = sounds.heard_ms
            await sounds.until_heard(heard_ms + TALKED_OVER_AFTER_MS)
            line.say("caller_talk_over")
            await sounds.until_silent()
            heard_ms = sounds.heard_ms - heard_ms
            demand(heard_ms < 5000, f"{heard_ms} ms of 6909 sounded: the model did not yield")
            report.came_through("interrupted", f"the model fell silent by itself after {heard_ms} ms")

            report.came_through("answered", await words(said, "window seat wish."))
            await sounds.until_silent()
        await session.aclose()
        listening.cancel()
    demand(not errors, errors)
    report.came_through("ended", "closed by LiveKit, no error told")


class Sounds:
    """The continuous voice, told apart from the silence in it."""

    def __init__(self):
        self.heard_ms = 0
        self.quiet_ms = 0

    async def listen(self, frames):
        async for duplex in frames:
            samples = numpy.frombuffer(duplex.frame.data, dtype=numpy.int16)
            ms = round(duplex.frame.duration * 1000)
            if numpy.abs(samples.astype(numpy.int32)).max() > AUDIBLE:
                self.heard_ms, self.quiet_ms = self.heard_ms + ms, 0
            else:
                self.quiet_ms += ms

    async def until_silent(self):
        self.quiet_ms = 0
        await self.until(lambda: self.quiet_ms >= 500)

    async def until_heard(self, ms):
        await self.until(lambda: self.heard_ms >= ms)

    async def until(self, holds):
        async with asyncio.timeout(15):
            while not holds():
                await asyncio.sleep(0.02)


async def words(said, last):
    text = ""
    while last not in text:
        text += (await said.until(f"{last!r} after {text!r}", lambda _: True)).text
    return text


if __name__ == "__main__":
    told = Report(f"LiveKit plugins-openai {importlib.metadata.version('livekit-plugins-openai')}, GPT-Live")
    try:
        asyncio.run(converse(sys.argv[1], sys.argv[2], told))
    finally:
        told.print()

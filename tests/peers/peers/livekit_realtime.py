"""LiveKit's RealtimeModel, which speaks and hears 24 kHz: `livekit_realtime.py MODEL_URL VOICES`."""

import asyncio
import importlib.metadata
import sys

import aiohttp
from conversation import BOOKED, INSTRUCTIONS, PATIENCE_S, Inbox, Line, Report, demand, linear
from livekit import rtc
from livekit.agents import llm
from livekit.plugins import openai
from openai.types import realtime

# The caller takes the floor when so much of the answer has come.
TALKED_OVER_AFTER_MS = 600


@llm.function_tool
async def book_table(party_size: int, time: str) -> str:
    """Books a table."""
    return BOOKED


async def converse(url, voices, report):
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(
            model="gpt-realtime-2.1",
            api_key="peer",
            base_url=url.replace("ws:", "http:"),
            http_session=http,
            input_audio_transcription=realtime.AudioTranscription(model="gpt-transcribe"),
            turn_detection=realtime.realtime_audio_input_turn_detection.ServerVad(
                type="server_vad", create_response=True, interrupt_response=True
            ),
        )
        session = model.session()
        heard, answers, errors = Inbox(), Inbox(), []
        speech_started = asyncio.Event()
        session.on("input_speech_started", lambda _: speech_started.set())
        session.on("input_audio_transcription_completed", heard.put)
        session.on("generation_created", answers.put)
        session.on("error", lambda event: errors.append(str(event.error)))

        async def send(mulaw):
            samples = len(mulaw)
            session.push_audio(rtc.AudioFrame(linear(mulaw), sample_rate=8000, num_channels=1, samples_per_channel=samples))

        await session.update_instructions(INSTRUCTIONS)
        await session.update_tools([book_table])
        async with Line(voices, send) as line:
            greeting = await session.generate_reply(instructions="Greet the guest.")
            spoken = await listen(greeting)
            demand(spoken.ms > 500 and spoken.words, f"the greeting: {spoken}")
            report.came_through("configured", "created by metadata, pcm 24 kHz both ways")
            report.came_through("greeted", spoken)

            answers.next = len(answers.came)
            line.say("caller_request")
            answer = await listen(await answers.until("the answer with the call", lambda _: True))
            transcript = await heard.until("the caller's transcript", lambda event: event.is_final)
            report.came_through("understood", transcript.transcript)
            demand(len(answer.calls) == 1, f"one call, not {answer.calls}")
            call = answer.calls[0]
            demand(not answer.message_ids == [], "the preamble came before the call")
            report.came_through("tool called", f"{call.name} {call.arguments}, after: {answer}")

            context = session.chat_ctx.copy()
            output = llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output=BOOKED, is_error=False)
            context.items.append(output)
            await session.update_chat_ctx(context)
            follow_up = await session.generate_reply()
            speech_started.clear()
            answers.next = len(answers.came)
            talk_over = Cue(TALKED_OVER_AFTER_MS, lambda: line.say("caller_talk_over"))
            cut = await listen(follow_up, talk_over)
            report.came_through("followed up", cut)

            async with asyncio.timeout(PATIENCE_S):
                await speech_started.wait()
            # As LiveKit's own agent does when the caller takes the floor.
            session.interrupt()
            session.truncate(message_id=cut.message_ids[0], modalities=["audio"], audio_end_ms=TALKED_OVER_AFTER_MS)
            report.came_through("interrupted", f"{cut.ms} ms had come, truncated to {TALKED_OVER_AFTER_MS}")

            last = await listen(await answers.until("the answer to the talk-over", lambda _: True))
            demand(last.ms > 500, f"the last answer: {last}")
            report.came_through("answered", last)
        await session.aclose()
    demand(not errors, errors)
    report.came_through("ended", "closed by the client, no error told")


class Cue:
    def __init__(self, after_ms, act):
        self.after_ms, self.act = after_ms, act


class Spoken(str):
    """What was said, with what belongs to it."""

    ms, words, calls, message_ids = 0, "", (), ()


async def listen(generation, cue=None):
    """One response to its end."""
    ms, words, calls, message_ids = 0.0, "", [], []

    async def sound(message):
        nonlocal ms, cue
        async for frame in message.audio_stream:
            ms += frame.duration * 1000
            if cue and ms >= cue.after_ms:
                cue.act()
                cue = None

    async def text(message):
        nonlocal words
        async for piece in message.text_stream:
            words += piece

    async def messages():
        async for message in generation.message_stream:
            message_ids.append(message.message_id)
            await asyncio.gather(sound(message), text(message))

    async def functions():
        async for call in generation.function_stream:
            calls.append(call)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(messages(), functions())
    spoken = Spoken(f"{ms:.0f} ms: {words}")
    spoken.ms, spoken.words, spoken.calls, spoken.message_ids = round(ms), words, calls, message_ids
    return spoken


if __name__ == "__main__":
    told = Report(f"LiveKit plugins-openai {importlib.metadata.version('livekit-plugins-openai')}")
    try:
        asyncio.run(converse(sys.argv[1], sys.argv[2], told))
    finally:
        told.print()

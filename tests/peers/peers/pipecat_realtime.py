"""A whole pipecat pipeline around its realtime service: `pipecat_realtime.py MODEL_URL VOICES`."""

import asyncio
import importlib.metadata
import sys

from conversation import BOOK_TABLE, BOOKED, INSTRUCTIONS, Inbox, Line, Report, demand, linear
from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    ErrorFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

TALKED_OVER_AFTER_MS = 600
WATCHED = (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    ErrorFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
    TranscriptionFrame,
    TTSTextFrame,
)


class Watch(FrameProcessor):
    """Shows what passes and passes it on."""

    def __init__(self, inbox):
        super().__init__()
        self.inbox = inbox

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, WATCHED):
            self.inbox.put(frame)
        await self.push_frame(frame, direction)


class Earpiece(BaseOutputTransport):
    """Takes sound at the speed at which it is heard."""

    def __init__(self):
        super().__init__(TransportParams(audio_out_enabled=True))
        self.heard_ms = 0

    async def start(self, frame):
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame):
        seconds = frame.num_frames / frame.sample_rate
        await asyncio.sleep(seconds)
        self.heard_ms += round(seconds * 1000)
        return True


async def book_table(params):
    await params.result_callback(BOOKED)


async def converse(url, voices, report):
    llm = OpenAIRealtimeLLMService(
        api_key="peer",
        base_url=f"{url}/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model="gpt-realtime-2.1",
            system_instruction=INSTRUCTIONS,
            session_properties=events.SessionProperties(
                audio=events.AudioConfiguration(
                    input=events.AudioInput(
                        transcription=events.InputAudioTranscription(model="gpt-transcribe"),
                        turn_detection=events.TurnDetection(silence_duration_ms=500),
                    )
                )
            ),
        ),
    )
    llm.register_function("book_table", book_table)
    parameters = BOOK_TABLE["parameters"]
    tool = FunctionSchema(
        name=BOOK_TABLE["name"],
        description=BOOK_TABLE["description"],
        properties=parameters["properties"],
        required=parameters["required"],
    )
    context = LLMContext(tools=ToolsSchema(standard_tools=[tool]))
    aggregators = LLMContextAggregatorPair(context)
    heard, said = Inbox(), Inbox()
    earpiece = Earpiece()
    pipeline = Pipeline(
        [aggregators.user(), Watch(heard), llm, Watch(said), earpiece, aggregators.assistant()],
    )
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=8000, audio_out_sample_rate=24000))
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())

    async def send(mulaw):
        await worker.queue_frame(InputAudioRawFrame(audio=linear(mulaw), sample_rate=8000, num_channels=1))

    await worker.queue_frame(LLMRunFrame())
    async with Line(voices, send) as line:
        words = await text(said)
        await said.until("the end of the greeting", lambda f: isinstance(f, BotStoppedSpeakingFrame))
        demand(earpiece.heard_ms > 3000, f"{earpiece.heard_ms} ms of the greeting")
        report.came_through("configured", "pcm 24 kHz both ways")
        report.came_through("greeted", f"{earpiece.heard_ms} ms: {words}")

        line.say("caller_request")
        transcript = await heard.until("the caller's transcript", lambda f: isinstance(f, TranscriptionFrame))
        report.came_through("understood", transcript.text)
        call = await said.until("the call", lambda f: isinstance(f, FunctionCallInProgressFrame))
        report.came_through("tool called", f"{call.function_name} {call.arguments}")

        await said.until("the result", lambda f: isinstance(f, FunctionCallResultFrame))
        words = await text(said, containing="Your table")
        await wait_until_heard(earpiece, TALKED_OVER_AFTER_MS)
        report.came_through("followed up", words)

        line.say("caller_talk_over")
        await said.until("the interruption", lambda f: isinstance(f, InterruptionFrame))
        report.came_through("interrupted", "the pipeline was interrupted while the answer sounded")
        words = await text(said, containing="window")
        await said.until("the end of the last answer", lambda f: isinstance(f, BotStoppedSpeakingFrame))
        report.came_through("answered", words)
    await worker.queue_frame(EndFrame())
    async with asyncio.timeout(15):
        await running
    errors = [frame.error for frame in heard.came + said.came if isinstance(frame, ErrorFrame)]
    demand(not errors, errors)
    report.came_through("ended", "by an EndFrame, no error frame")


async def text(said, containing=""):
    """The words of an answer, up to its end or to what is looked for."""
    words = ""
    while True:
        frame = await said.until("words", lambda f: isinstance(f, TTSTextFrame))
        words += frame.text
        if words.endswith((".", "?")) if not containing else containing in words:
            return words.strip()


async def wait_until_heard(earpiece, more_ms):
    goal = earpiece.heard_ms + more_ms
    async with asyncio.timeout(15):
        while earpiece.heard_ms < goal:
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    told = Report(f"pipecat {importlib.metadata.version('pipecat-ai')}")
    try:
        asyncio.run(converse(sys.argv[1], sys.argv[2], told))
    finally:
        told.print()

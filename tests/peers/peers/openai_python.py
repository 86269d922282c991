"""The vendor's own Python client, in telephone μ-law: `openai_python.py MODEL_URL VOICES`."""

import asyncio
import base64
import sys

import openai
from conversation import BOOK_TABLE, BOOKED, INSTRUCTIONS, Inbox, Line, Report, demand


async def converse(url, voices, report):
    client = openai.AsyncOpenAI(api_key="peer", websocket_base_url=url)
    async with client.realtime.connect(model="gpt-realtime-2.1") as connection:
        inbox = Inbox()
        reading = asyncio.create_task(read(connection, inbox))

        async def send(mulaw):
            await connection.input_audio_buffer.append(audio=base64.b64encode(mulaw).decode())

        def of(kind):
            return inbox.until(kind, lambda event: event.type == kind)

        await of("session.created")
        pcmu = {"type": "audio/pcmu"}
        await connection.session.update(
            session={
                "type": "realtime",
                "instructions": INSTRUCTIONS,
                "audio": {
                    "input": {
                        "format": pcmu,
                        "transcription": {"model": "gpt-transcribe"},
                        "turn_detection": {"type": "semantic_vad", "create_response": True, "interrupt_response": True},
                    },
                    "output": {"format": pcmu, "voice": "marin"},
                },
                "tools": [BOOK_TABLE],
            }
        )
        session = (await of("session.updated")).session
        demand(session.audio.output.format.type == "audio/pcmu", "the session speaks μ-law")
        report.came_through("configured", session.audio.output.format.type)

        async with Line(voices, send) as line:
            await connection.response.create(response={"metadata": {"purpose": "greeting"}})
            created = await of("response.created")
            demand(created.response.metadata == {"purpose": "greeting"}, "the metadata comes back")
            spoken = await answer(inbox)
            report.came_through("greeted", spoken)

            line.say("caller_request")
            turn = await of("input_audio_buffer.speech_started")
            heard = await of("conversation.item.input_audio_transcription.completed")
            demand(heard.item_id == turn.item_id, "the transcript is of the turn that began")
            report.came_through("understood", heard.transcript)
            call = (await of("response.function_call_arguments.done"))
            await of("response.done")
            report.came_through("tool called", f"{call.name} {call.arguments}")

            output = {"type": "function_call_output", "call_id": call.call_id, "output": BOOKED}
            await connection.conversation.item.create(item=output)
            done = await of("conversation.item.done")
            demand(done.item.type == "function_call_output", "the output is in the conversation")
            await connection.response.create()
            created = await of("response.created")
            delta = await of("response.output_audio.delta")
            report.came_through("followed up", f"{len(base64.b64decode(delta.delta)) // 8} ms in the first delta")

            await of("response.output_audio.delta")
            await connection.response.cancel(response_id=created.response.id)
            cut = (await of("response.done")).response
            demand((cut.status, cut.status_details.reason) == ("cancelled", "client_cancelled"), cut.status)
            await connection.conversation.item.truncate(item_id=delta.item_id, content_index=0, audio_end_ms=300)
            truncated = await of("conversation.item.truncated")
            await connection.conversation.item.retrieve(item_id=delta.item_id)
            kept = (await of("conversation.item.retrieved")).item
            demand(kept.content[0].transcript is None, "a truncated item has no transcript")
            report.came_through("interrupted", f"cancelled, truncated to {truncated.audio_end_ms} ms, transcript dropped")

            line.say("caller_talk_over")
            report.came_through("answered", await answer(inbox))

            # A mistake is told with the id of the event that made it, and the session goes on.
            await connection.response.cancel(event_id="a_late_cancel")
            refused = (await of("error")).error
            demand((refused.code, refused.event_id) == ("response_cancel_not_active", "a_late_cancel"), refused)
            await connection.conversation.item.delete(item_id=delta.item_id)
            await of("conversation.item.deleted")
            await connection.input_audio_buffer.clear()
            await of("input_audio_buffer.cleared")
    await reading
    report.came_through("ended", "closed by the client; a late cancel was refused by its event id")


async def answer(inbox):
    """The next response to its end: what it said, and for how long it sounded."""
    sound, words = 0, ""
    while True:
        event = await inbox.until("an answer", lambda _: True)
        if event.type == "response.output_audio.delta":
            sound += len(base64.b64decode(event.delta)) // 8
        elif event.type == "response.output_audio_transcript.delta":
            words += event.delta
        elif event.type == "response.done":
            demand(event.response.status == "completed", event.response.status)
            demand(sound > 500 and words, f"{sound} ms of sound, {words!r}")
            return f"{sound} ms: {words}"


async def read(connection, inbox):
    async for event in connection:
        inbox.put(event)


if __name__ == "__main__":
    told = Report(f"openai (Python) {openai.__version__}")
    try:
        asyncio.run(converse(sys.argv[1], sys.argv[2], told))
    finally:
        told.print()

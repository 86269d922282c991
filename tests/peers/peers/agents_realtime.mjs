// OpenAI's agents SDK for JavaScript, its WebSocket transport by itself: `agents_realtime.mjs MODEL_URL VOICES`.
// The transport interrupts and truncates by its own wall clock when the caller begins to speak.

import { OpenAIRealtimeWebSocket } from "@openai/agents-realtime";
import { BOOKED, bookTable, demand, Inbox, INSTRUCTIONS, Line, Report, version } from "./conversation.mjs";

const TALKED_OVER_AFTER_MS = 600;

async function converse(url, voices, report) {
  const transport = new OpenAIRealtimeWebSocket({ url: `${url}/realtime?model=gpt-realtime-2.1` });
  const inbox = new Inbox();
  transport.on("*", (event) => inbox.put(event));
  const calls = [];
  transport.on("function_call", (call) => calls.push(call));
  const errors = [];
  transport.on("error", (error) => errors.push(JSON.stringify(error)));
  let interruptions = 0;
  transport.on("audio_interrupted", () => (interruptions += 1));
  let heardMs = 0;
  let atHeard = { ms: Infinity, act: () => {} };
  transport.on("audio", (audio) => {
    heardMs += audio.data.byteLength / 8;
    if (heardMs >= atHeard.ms) {
      atHeard.ms = Infinity;
      atHeard.act();
    }
  });

  await transport.connect({
    apiKey: "peer",
    model: "gpt-realtime-2.1",
    initialSessionConfig: {
      instructions: INSTRUCTIONS,
      tools: [bookTable],
      audio: {
        input: {
          format: { type: "audio/pcmu" },
          transcription: { model: "gpt-transcribe" },
          turnDetection: { type: "server_vad", createResponse: true, interruptResponse: true },
        },
        output: { format: { type: "audio/pcmu" }, voice: "marin" },
      },
    },
  });
  const updated = await inbox.until(
    "the session in μ-law",
    (e) => e.type === "session.updated" && e.session.audio.output.format.type === "audio/pcmu",
  );
  demand(updated.session.tools.length === 1, "the tool is in the session");
  report.cameThrough("configured", updated.session.audio.output.format.type);

  const line = new Line(voices, (mulaw) => transport.sendAudio(mulaw));
  try {
    transport.requestResponse();
    report.cameThrough("greeted", await answer(inbox));

    line.say("caller_request");
    const transcript = await inbox.of("conversation.item.input_audio_transcription.completed");
    report.cameThrough("understood", transcript.transcript);
    await inbox.of("response.done");
    demand(calls.length === 1, `one call, not ${calls.length}`);
    report.cameThrough("tool called", `${calls[0].name} ${calls[0].arguments}`);

    // It also tells its player of a caller who spoke when everything had sounded.
    interruptions = 0;
    atHeard = { ms: heardMs + TALKED_OVER_AFTER_MS, act: () => line.say("caller_talk_over") };
    transport.sendFunctionCallOutput(calls[0], BOOKED, true);
    const delta = await inbox.of("response.output_audio.delta");
    report.cameThrough("followed up", `the answer sounds (${delta.item_id})`);

    const cut = await inbox.of("response.done");
    demand(cut.response.status === "cancelled", cut.response.status);
    demand(cut.response.status_details.reason === "turn_detected", JSON.stringify(cut.response.status_details));
    const truncated = await inbox.of("conversation.item.truncated");
    demand(truncated.item_id === delta.item_id, "the item that sounded was truncated");
    demand(interruptions === 1, `interrupted once, not ${interruptions} times`);
    report.cameThrough("interrupted", `cancelled by turn detection, truncated to ${truncated.audio_end_ms} ms`);

    report.cameThrough("answered", await answer(inbox));
  } finally {
    line.close();
    transport.close();
  }
  demand(errors.length === 0, errors.join());
  report.cameThrough("ended", "closed by the client, no error told");
}

// The next response to the end of its sound.
async function answer(inbox) {
  let ms = 0;
  let words = "";
  let began = 0;
  for (;;) {
    const event = await inbox.until("an answer", () => true);
    if (event.type === "response.output_audio.delta") {
      began ||= Date.now();
      ms += Buffer.from(event.delta, "base64").length / 8;
    } else if (event.type === "response.output_audio_transcript.delta") {
      words += event.delta;
    } else if (event.type === "response.done") {
      demand(event.response.status === "completed", event.response.status);
      demand(ms > 500 && words, `${ms} ms of sound, "${words}"`);
      // Who speaks sooner interrupts: it is generated faster than it sounds.
      await new Promise((resolve) => setTimeout(resolve, began + ms - Date.now()));
      return `${Math.round(ms)} ms: ${words}`;
    }
  }
}

const report = new Report(`@openai/agents-realtime ${version("@openai/agents-realtime")}`);
try {
  await converse(process.argv[2], process.argv[3], report);
} finally {
  report.print();
}
process.exit(0);

// The reference bridge: OpenAI's Twilio transport for its agents SDK, as its documentation sets it up. It answers the
// carrier's webhook, takes the media stream and holds the model's session: `twilio_transport.mjs MODEL_URL`.

import { createServer } from "node:http";
import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents/realtime";
import { TwilioRealtimeTransportLayer } from "@openai/agents-extensions";
import { WebSocketServer } from "ws";
import { BOOKED, bookTable, INSTRUCTIONS } from "./conversation.mjs";

const modelUrl = process.argv[2];

const agent = new RealtimeAgent({
  name: "host",
  instructions: INSTRUCTIONS,
  tools: [tool({ ...bookTable, execute: async () => BOOKED })],
});

async function bridge(twilioWebSocket) {
  const transport = new TwilioRealtimeTransportLayer({
    twilioWebSocket,
    url: `${modelUrl}/realtime?model=gpt-realtime-2.1`,
  });
  const session = new RealtimeSession(agent, {
    transport,
    model: "gpt-realtime-2.1",
    // Said in full: without it the session asks for 24 kHz, which a telephone cannot play.
    config: {
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
  session.on("error", (error) => console.error("session:", JSON.stringify(error)));
  await session.connect({ apiKey: "peer" });
  transport.requestResponse();
}

const server = createServer((request, response) => {
  request.resume();
  if (request.url === "/twilio/voice") {
    const stream = `<Stream url="wss://${request.headers.host}/media"/>`;
    response.setHeader("content-type", "text/xml");
    response.end(`<?xml version="1.0" encoding="UTF-8"?><Response><Connect>${stream}</Connect></Response>`);
  } else {
    response.end();
  }
});
new WebSocketServer({ server, path: "/media" }).on("connection", (socket) => {
  bridge(socket).catch((error) => console.error("bridge:", error));
});
server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));

// What conversation.py is to the Python peers: the steps of a conversation and a caller on a line.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const STEPS = ["configured", "greeted", "understood", "tool called", "followed up", "interrupted", "answered", "ended"];

export const INSTRUCTIONS = "You are the host of a small restaurant, on the telephone with a guest.";
export const bookTable = {
  type: "function",
  name: "book_table",
  description: "Books a table.",
  parameters: {
    type: "object",
    properties: { party_size: { type: "integer" }, time: { type: "string" } },
    required: ["party_size", "time"],
    additionalProperties: false,
  },
  strict: true,
};
export const BOOKED = JSON.stringify({ status: "committed", reference: "B7" });

const PATIENCE_MS = 15_000;

export function demand(holds, what) {
  if (!holds) throw new Error(what);
}

// The installed version of a package.
export function version(name) {
  let folder = dirname(createRequire(import.meta.url).resolve(name));
  for (;;) {
    try {
      const read = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      if (read.name === name) return read.version;
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
    folder = dirname(folder);
  }
}

// One line of JSON on standard output, whatever became of it.
export class Report {
  constructor(peer) {
    this.told = { peer, steps: {} };
  }
  cameThrough(step, detail) {
    demand(STEPS.includes(step), step);
    this.told.steps[step] = detail;
  }
  print() {
    console.log(JSON.stringify(this.told));
  }
}

// What came, in order; each wait goes on where the last one ended.
export class Inbox {
  came = [];
  next = 0;
  wake = () => {};

  put(event) {
    this.came.push(event);
    this.wake();
  }
  of(type) {
    return this.until(type, (event) => event.type === type);
  }
  async until(what, fits) {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      while (this.next < this.came.length) {
        const event = this.came[this.next++];
        if (fits(event)) return event;
      }
      const left = deadline - Date.now();
      demand(left > 0, `waited ${PATIENCE_MS / 1000} s for ${what}; came: ${this.came.slice(-8).map((e) => e.type)}`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, left);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

const FRAME = 160;

// A telephone line that is open all the time: 20 ms of 8 kHz μ-law after the other, silence when nobody speaks.
export class Line {
  constructor(voices, send) {
    this.voices = voices;
    this.sound = Buffer.alloc(0);
    let sent = 0;
    const began = Date.now();
    this.timer = setInterval(() => {
      // Timers come late; the line keeps real time all the same.
      while (sent * 20 <= Date.now() - began) {
        const frame = new Uint8Array(FRAME).fill(0xff);
        frame.set(this.sound.subarray(0, FRAME));
        this.sound = this.sound.subarray(FRAME);
        send(frame.buffer);
        sent += 1;
      }
    }, 10);
  }
  say(name) {
    this.sound = Buffer.concat([this.sound, readFileSync(join(this.voices, `${name}.ulaw`))]);
  }
  close() {
    clearInterval(this.timer);
  }
}

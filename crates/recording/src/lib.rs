//! The call log: what happened to a call and what it made of it, written so that it can happen again.
//!
//! A recording is a directory, one a stream:
//!
//! ```text
//! call.jsonl     a header line, one line a step, and a last line when the log was closed in order
//! caller.ulaw    what the caller said, as the call heard it: 8 kHz μ-law, silence put into gaps included
//! agent.ulaw     what was sent to the carrier, in the order of sending, padding included
//! ```
//!
//! ```text
//! {"recording":{"format":2,…}}
//! {"n":1,"at":0,"input":{"call_started":{"greeting":null}},"commands":[]}
//! {"n":2,"at":20013,"caller_at":0,"quiet":{"frames":50,"gaps_us":[19987,[20000,48]],"samples":[[160,50]],"speech":[50],"levels":[[-70,50]]}}
//! {"n":52,"at":1020000,"caller_at":8000,"input":{"caller_audio":{…}},"agent_at":0,"commands":[…]}
//! {"n":53,"at":1040000,"caller_at":8160,"agent_at":160,"quiet":{"frames":2,…,"spoken":{"voice":{…},"from":160,"samples":[[160,2]],"order":[1,1,1,1]}}}
//! {"ended":{"steps":56,"at":1060000}}
//! ```
//!
//! `n` counts steps from 1, `at` is the call's time in µs, `caller_at` and `agent_at` are byte offsets into the sidecars. A
//! run of steps in which nothing was decided is folded into one `quiet` line: caller frames that caused nothing and, since
//! format 2, pieces of the model's voice that were sent on as they came. It still says of each frame when it came, how long it
//! was and what the detector heard, and of each piece when and how much (`order`: lengths of the stretches of frames and of
//! pieces in turn), so a replay is exact. A torn last line is what a killed process leaves: the
//! reader reports it, and the input in it if that had been written.
//!
//! What is absent on purpose: inputs and commands are any types with serde, since the core is on the same floor; no file is
//! opened here, only `Read` and `Write` are known.

mod header;
mod quiet;
mod reader;
mod writer;

pub use header::{FORMAT, Header, ToolFacts, redacted_caller};
pub use quiet::{Frame, MAX_RUN, Piece, Voice};
pub use reader::{InsideStep, ReadError, Reader, Recorded, Step, Tail};
pub use writer::{StopReason, Writer};

/// The steps.
pub const STEPS_FILE: &str = "call.jsonl";
/// The caller's audio.
pub const CALLER_FILE: &str = "caller.ulaw";
/// The agent's audio.
pub const AGENT_FILE: &str = "agent.ulaw";

//! What will happen, in order of time; at the same time in the order in which it was arranged.

use super::backend::{Request, ToolAnswer};
use super::process::{Reply, Who, Write};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use vocab::model::{ModelCommand, ModelEvent};
use vocab::work::WorkEvent;
use vocab::{MarkName, ModelResponseId, PlaybackId, Samples};

/// Virtual time of the world, in microseconds since it began.
pub type Micros = u64;

pub const MS: Micros = 1_000;

/// On its way to the carrier.
#[derive(Clone, Copy, Debug)]
pub enum ToLine {
    Audio { playback: PlaybackId, from: Samples, to: Samples },
    Mark(MarkName),
    Clear,
}

#[derive(Debug)]
pub enum Event {
    /// The act of this index.
    Act(usize),
    /// The carrier opens a socket for this call.
    Connect {
        call: usize,
    },
    Frames {
        stream: usize,
        count: u32,
    },
    Deadline {
        stream: usize,
    },
    LineGot {
        stream: usize,
        what: ToLine,
    },
    MarkDue {
        stream: usize,
        number: u32,
    },
    Echo {
        stream: usize,
        mark: MarkName,
    },
    SocketBreaks {
        stream: usize,
    },
    TalkOver {
        stream: usize,
    },
    ModelGot {
        stream: usize,
        command: ModelCommand,
    },
    /// With a response: only while that response generates.
    ModelSays {
        stream: usize,
        of: Option<ModelResponseId>,
        event: ModelEvent,
    },
    /// The provider's turn detection looks whether the caller is done.
    TurnDetection {
        stream: usize,
        spurious: bool,
    },
    Told {
        stream: usize,
        event: WorkEvent,
    },
    Apply {
        life: u32,
        write: Box<Write>,
    },
    Replied {
        life: u32,
        who: Who,
        reply: Box<Reply>,
    },
    Dispatch {
        life: u32,
        ticket: u64,
    },
    BackendGot(Box<Request>),
    BackendActs(Box<Request>),
    ToolAnswers {
        life: u32,
        worker: u64,
        answer: Box<ToolAnswer>,
    },
    ToolTimesOut {
        life: u32,
        worker: u64,
    },
    Restart {
        life: u32,
    },
    /// The faults stop.
    Calm,
    /// Has everything settled?
    Look,
}

struct Arranged {
    at: Micros,
    number: u64,
    event: Event,
}

impl PartialEq for Arranged {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Arranged {}
impl PartialOrd for Arranged {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Arranged {
    /// The earliest is the greatest, as the heap hands out the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

#[derive(Default)]
pub struct Queue {
    heap: BinaryHeap<Arranged>,
    number: u64,
}

impl Queue {
    pub fn at(&mut self, at: Micros, event: Event) {
        self.number += 1;
        self.heap.push(Arranged { at, number: self.number, event });
    }

    pub fn next(&mut self) -> Option<(Micros, Event)> {
        self.heap.pop().map(|arranged| (arranged.at, arranged.event))
    }
}

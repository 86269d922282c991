//! What happened in a story, on one axis from the beginning of its first stream.

use super::pass::Pass;
use super::sounds::Sound;
use super::streams::Stream;
use crate::events::Event;
use conversation::{Policy, Purpose};
use vocab::delivery::{DeliveryBrief, DeliveryState};
use vocab::effect::OperationStatus;
use vocab::model::ResponseEnd;
use vocab::{DeliveryId, OperationId};

/// Something that the model was asked for.
#[derive(Clone, Debug)]
pub struct Response {
    pub purpose: Purpose,
    pub directions: Option<String>,
    pub asked_us: u64,
    /// Its first sound or call.
    pub first_us: Option<u64>,
    pub samples: u32,
    pub words: Option<String>,
    pub calls: Vec<(String, String)>,
    pub end: Option<ResponseEnd>,
    pub cancelled_us: Option<u64>,
    pub refused: bool,
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub id: OperationId,
    pub tool: String,
    pub arguments: String,
    pub inline_wait_ms: u32,
    pub admitted_us: u64,
    /// Every outcome that was told, with its words.
    pub outcomes: Vec<(u64, OperationStatus, String)>,
    /// The process died before it told one.
    pub killed_us: Option<u64>,
}

/// An outcome that stays unknown for less is asked about once.
const SOON_US: u64 = 300_000;

impl Operation {
    /// It was unknown for a while: when that was told, and how long until the truth was, in microseconds.
    pub fn unknown_for(&self) -> Option<(u64, u64)> {
        let [(from_us, OperationStatus::Unknown, _), (to_us, _, _), ..] = self.outcomes.as_slice() else { return None };
        let gap_us = to_us.saturating_sub(*from_us);
        (gap_us > SOON_US).then_some((*from_us, gap_us))
    }

    pub fn status(&self) -> Option<OperationStatus> {
        self.outcomes.last().map(|(_, status, _)| *status)
    }
}

#[derive(Clone, Debug)]
pub struct Hearing {
    pub words: String,
    /// `None`: nothing says how much was heard.
    pub whole: Option<bool>,
}

/// Something that the caller did, or that went wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    Sound(Sound),
    Key(char),
    HungUp,
    CallAgain,
    Killed,
    ModelLost,
    /// The provider would not start so many responses.
    Refused(u32),
    MarksDropped,
    MarksLate(u32),
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub greeting: Option<String>,
    /// Each with the number of its step: events of one step have an order that nothing can change.
    pub events: Vec<(usize, Event)>,
    pub responses: Vec<Response>,
    pub operations: Vec<Operation>,
    pub briefs: Vec<DeliveryBrief>,
    pub deliveries: Vec<(DeliveryId, DeliveryState)>,
    pub heard: Vec<Hearing>,
    pub clears: u32,
    pub happenings: Vec<(u64, Happening)>,
    /// For comments: what the file cannot say.
    pub untold: Vec<String>,
    pub lasted_us: u64,
}

impl Facts {
    pub fn of(story: &[Stream], policy: &Policy) -> Self {
        let mut facts = Self::default();
        let zero = story.first().map_or(0, |stream| stream.header.started.0);
        let mut steps = 0;
        for (n, stream) in story.iter().enumerate() {
            let offset_us = stream.header.started.0.saturating_sub(zero).max(0) as u64 * 1_000;
            let before = n.checked_sub(1).map(|before| &story[before]);
            if before.is_some_and(|before| before.header.call != stream.header.call) {
                facts.happenings.push((offset_us, Happening::CallAgain));
            }
            if before.is_some_and(Stream::was_killed) {
                facts.note(&mut steps, offset_us, "restarted");
            }
            Pass::new(&mut facts, stream, offset_us, &mut steps).run(policy);
            let last_us = offset_us + stream.steps.last().map_or(0, |step| step.at.0);
            facts.lasted_us = facts.lasted_us.max(last_us);
            let goes_on = story.get(n + 1).is_some_and(|next| next.header.call == stream.header.call);
            if stream.was_killed() {
                facts.note(&mut steps, last_us, "killed");
                facts.happenings.push((last_us, Happening::Killed));
                for operation in facts.operations.iter_mut().filter(|known| known.outcomes.is_empty()) {
                    operation.killed_us.get_or_insert(last_us);
                }
                facts.lose_evidence();
                if !goes_on && story.len() > n + 1 {
                    facts.happenings.push((last_us, Happening::HungUp));
                }
            } else if !goes_on {
                facts.happenings.push((last_us, Happening::HungUp));
            }
        }
        facts.happenings.sort_by_key(|(at_us, _)| *at_us);
        facts
    }

    fn note(&mut self, steps: &mut usize, at_us: u64, name: &'static str) {
        *steps += 1;
        self.events.push((*steps, Event { at_us, name, text: String::new() }));
    }

    /// A stream that is over can prove no more.
    pub fn lose_evidence(&mut self) {
        for (_, state) in &mut self.deliveries {
            if *state == DeliveryState::Offered {
                *state = DeliveryState::Uncertain;
            }
        }
    }
}

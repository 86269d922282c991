//! Recordings, put together to the calls that they belong to.

use conversation::{Command, Decision, Input, Policy};
use recording::{CALLER_FILE, Header, Tail};
use replay::{ReplayError, ReplayStep};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vocab::model::{ModelEvent, Speaks};
use vocab::work::WorkEvent;
use vocab::{ModelResponseId, OperationId, ResponseId};

/// One recording, whole in memory: an hour has some tens of MB.
#[derive(Clone, Debug)]
pub struct Stream {
    pub place: PathBuf,
    pub header: Header,
    pub policy: Policy,
    pub steps: Vec<ReplayStep>,
    pub tail: Option<Tail<Input>>,
    /// 8 kHz μ-law; empty where it was not kept.
    pub caller: Vec<u8>,
    /// What the model said, by response.
    pub words: BTreeMap<ResponseId, String>,
}

impl Stream {
    pub fn read(place: &Path) -> Result<Self, ReplayError> {
        let mut log = replay::open(place)?;
        let header = log.header().clone();
        let policy = replay::recorded_policy(place, &header)?;
        let mut steps = Vec::new();
        for step in log.by_ref() {
            steps.push(step?);
        }
        let tail = log.tail().cloned();
        // A recording may be handed on without its sound.
        let caller = std::fs::read(place.join(CALLER_FILE)).unwrap_or_default();
        let words = words(&steps, header.scrubbed);
        Ok(Self { place: place.to_owned(), header, policy, steps, tail, caller, words })
    }

    /// The process ended before the stream did.
    pub fn was_killed(&self) -> bool {
        match &self.tail {
            Some(Tail::Open | Tail::Torn { .. }) => {
                !self.steps.last().is_some_and(|step| matches!(step.input, Input::StreamEnded))
            }
            Some(Tail::Ended { .. } | Tail::Stopped { .. }) | None => false,
        }
    }

    pub fn model_speaks_by_itself(&self) -> bool {
        self.steps.iter().any(|step| match &step.input {
            Input::Model(ModelEvent::SessionOpened { capabilities }) => capabilities.speaks == Speaks::ByItself,
            _ => false,
        })
    }

    fn admitted(&self) -> impl Iterator<Item = &OperationId> {
        self.steps.iter().filter_map(|step| {
            let Input::Work(WorkEvent::Admitted { operation, attached_to: None, .. }) = &step.input else {
                return None;
            };
            Some(operation)
        })
    }

    /// Operations of earlier calls whose outcome came up here.
    pub fn from_earlier(&self) -> BTreeSet<&OperationId> {
        let briefs = self.steps.iter().filter_map(|step| {
            let Input::Work(WorkEvent::DeliveryReady(brief)) = &step.input else { return None };
            brief.from_earlier_call.then_some(&brief.operations)
        });
        briefs.flatten().collect()
    }
}

fn words(steps: &[ReplayStep], scrubbed: bool) -> BTreeMap<ResponseId, String> {
    let mut words: BTreeMap<ResponseId, String> = BTreeMap::new();
    let mut ours: BTreeMap<ModelResponseId, ResponseId> = BTreeMap::new();
    let mut asked = Vec::new();
    for step in steps {
        if let Input::Model(ModelEvent::ResponseCreated { response, request }) = &step.input
            && let Some(request) = request.or_else(|| asked.last().copied())
        {
            ours.insert(*response, request);
        }
        if let Input::Model(ModelEvent::AudioReceived { response, .. }) = &step.input
            && let Some(request) = ours.get(response)
        {
            words.entry(*request).or_default();
        }
        if let Input::Model(ModelEvent::TranscriptReceived { response, text, .. }) = &step.input
            && let Some(request) = ours.get(response)
        {
            words.entry(*request).or_default().push_str(text);
        }
        for command in &step.commands {
            if let Command::Explain(Decision::ResponsePlanned { response, .. }) = command {
                asked.push(*response);
            }
        }
    }
    // What is heard is told apart by its words, so there must be some.
    for (response, words) in &mut words {
        if scrubbed || words.trim().is_empty() {
            *words = format!("Line {} of the agent.", response.0);
        }
    }
    words
}

/// Streams that belong together, each story in order of time: those of one call, and the calls whose outcomes came up in a
/// later one.
pub fn stories(mut streams: Vec<Stream>) -> Vec<Vec<Stream>> {
    streams.sort_by(|a, b| (a.header.started, &a.place).cmp(&(b.header.started, &b.place)));
    let mut stories: Vec<Vec<Stream>> = Vec::new();
    for stream in streams {
        let earlier = stream.from_earlier();
        let belongs = stories.iter().rposition(|story| {
            story.iter().any(|known| {
                let one_call = known.header.call == stream.header.call && !known.header.scrubbed;
                one_call || known.admitted().any(|operation| earlier.contains(operation))
            })
        });
        match belongs {
            Some(place) => stories[place].push(stream),
            None => stories.push(vec![stream]),
        }
    }
    stories
}

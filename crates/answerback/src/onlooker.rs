//! A call as the server sees it, for whoever has its admin token: words, decisions, operations and deliveries.

use crate::args::CallArgs;
use crate::demo::moment::{Lane, Tone};
use crate::demo::narrate::Narrator;
use crate::live::{self, AdminApi, Live, Step};
use crate::words::{attempt_in_words, delivery_in_words};
use anyhow::Context;
use conversation::Input;
use operations::SessionState;
use operations::history::History;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use vocab::ModelResponseId;
use vocab::model::ModelEvent;

/// For the last writes of a call to be on record.
const RECORD_CAP: Duration = Duration::from_secs(4);
const RECORD_EVERY: Duration = Duration::from_millis(100);

/// Something to be told.
pub(crate) struct Line {
    /// Since the call was dialled.
    pub at_us: u64,
    pub sgr: &'static str,
    pub text: String,
}

pub(crate) struct Onlooker {
    api: AdminApi,
    client: reqwest::Client,
    live: mpsc::Receiver<Live>,
    narrator: Narrator,
    /// What the model says, as it comes.
    texts: BTreeMap<ModelResponseId, String>,
    lines: VecDeque<Line>,
    opened_us: u64,
    last_us: u64,
}

impl Onlooker {
    /// `None` without a token.
    pub async fn at(args: &CallArgs) -> anyhow::Result<Option<Self>> {
        let Some(token) = args.admin_token.clone() else { return Ok(None) };
        let base = match args.line.connect {
            Some(address) => format!("http://{address}"),
            None => args.line.url.trim_end_matches("/twilio/voice").to_owned(),
        };
        let api = AdminApi { base, token };
        let client = reqwest::Client::builder().build().context("the HTTP client cannot be made")?;
        let live = live::subscribe(&api, &client).await?;
        Ok(Some(Self {
            api,
            client,
            live,
            narrator: Narrator::default(),
            texts: BTreeMap::new(),
            lines: VecDeque::new(),
            opened_us: 0,
            last_us: 0,
        }))
    }

    pub fn stream_opened(&mut self, at_us: u64) {
        self.opened_us = at_us;
    }

    /// The next thing that the server did in this call. Cancel safe.
    pub async fn next(&mut self, call_sid: &str) -> Option<Line> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            match self.live.recv().await {
                Some(Live::Step { call_sid: of, step }) if of == call_sid => self.take(&step),
                Some(Live::CallEnded { call_sid: of, end }) if of == call_sid => {
                    let text = format!("server: the stream has ended ({})", end.replace('_', " "));
                    return Some(Line { at_us: self.last_us, sgr: "2", text });
                }
                Some(Live::Step { .. } | Live::CallEnded { .. }) => {}
                Some(Live::Missed) => {
                    let text = "server: some of its events were lost on their way".to_owned();
                    return Some(Line { at_us: self.last_us, sgr: "31", text });
                }
                None => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, step: &Step) {
        self.last_us = self.opened_us + step.at_us.0;
        let mut ended = None;
        match &step.input {
            Some(Input::Model(ModelEvent::TranscriptReceived { response, text, .. })) => {
                self.texts.entry(*response).or_default().push_str(text);
            }
            Some(Input::Model(ModelEvent::ResponseEnded { response, .. })) => ended = self.texts.remove(response),
            Some(Input::Model(ModelEvent::CallerTranscript { text, .. })) => {
                let text = format!("the model understood the caller: “{}”", text.trim());
                self.lines.push_back(Line { at_us: self.last_us, sgr: "36", text });
            }
            Some(_) | None => {}
        }
        for moment in self.narrator.of_step(step, self.opened_us, || ended) {
            let who = match moment.lane {
                Lane::Model => "model",
                Lane::Sent => "sent",
                Lane::Work => "work",
                Lane::Gate => "gate",
                // The phone tells these by itself.
                Lane::Caller | Lane::Heard => continue,
            };
            let sgr = match moment.tone {
                Tone::Plain => moment.lane.colour(),
                Tone::Good => "1;32",
                Tone::Cut => "1;31",
            };
            let line = moment.text.map(|text| Line { at_us: moment.at_us, sgr, text: format!("{who}: {text}") });
            self.lines.extend(line);
        }
    }

    /// Tells what the server keeps of the call, when its last writes are done.
    pub async fn on_record(&self, call_sid: &str) -> anyhow::Result<()> {
        let until = Instant::now() + RECORD_CAP;
        let history = loop {
            let history = live::history(&self.api, &self.client, call_sid).await?;
            let ended = history.sessions.iter().all(|known| known.session.state == SessionState::Ended);
            if ended || Instant::now() >= until {
                break history;
            }
            tokio::time::sleep(RECORD_EVERY).await;
        };
        tell(&history);
        Ok(())
    }
}

fn tell(history: &History) {
    outln!("\nwhat the server keeps of it");
    for known in &history.sessions {
        outln!("session     {}: {}", known.session.id, known.session.state.as_str());
        for operation in &known.operations {
            let (tries, operation) = (&operation.attempts, &operation.operation);
            let tries: Vec<String> = tries.iter().map(attempt_in_words).collect();
            let tries = if tries.is_empty() { "nothing sent".to_owned() } else { tries.join(", then ") };
            let status = operation.status.as_str();
            outln!("operation   {} {}: {status} ({tries})", operation.tool, operation.arguments);
        }
        for delivery in &known.deliveries {
            outln!("delivery    {}\n            {}", delivery_in_words(delivery), delivery.text);
        }
        if known.operations.is_empty() {
            outln!("operation   none was asked for");
        }
    }
}

//! What a demo must have kept. Each promise is judged by whoever would know: what happened by the booking system's own book,
//! what was heard by the caller's ear, and what the server claims by comparing it with these two.

use super::ear::Heard;
use super::narrate::{decision_in_words, reason_in_words};
use super::story::{ACKNOWLEDGING, CONFIRMING, CallStory, Story};
use crate::sound::audible_bytes;
use crate::terminal::count;
use crate::words::{attempt_in_words, delivery_in_words};
use conversation::gate::GateReason;
use conversation::{Command, Decision, Input, PlaybackEnd};
use serde::Serialize;
use sim::phone::CallEnd;
use vocab::CallTime;
use vocab::delivery::DeliveryState;
use vocab::effect::OperationStatus;
use vocab::model::ModelEvent;
use vocab::work::WorkEvent;

/// Beyond the tool's inline wait: for the model to begin to speak, for the line, and for two processes on a busy machine.
const ACCEPTANCE_SLACK_MS: u64 = 1_000;
/// From the caller's first sound to the last of ours: 200 ms prove that it is speech (`turn.confirm_ms`), the rest is for the
/// detector, for a first syllable that is shorter than that, and for two processes on a busy machine.
const STOP_WITHIN_MS: u64 = 600;
/// A sound that was not cut is known to the frame.
const WHOLE_TOLERANCE_MS: u64 = 20;
/// A cut one is known to the mark, and marks stand 200 ms apart (`playback.mark_every_ms`): the echo that a `clear` returns
/// does not say whether its audio was played or thrown away, so the server judges it by its own clock, which runs ahead of
/// the ear by the way to the carrier.
const CUT_TOLERANCE_MS: u64 = 200;
/// Words of success in the demo's language. "booking" is none.
const SUCCESS_WORDS: [&str; 5] = ["booked", "confirmed", "reserved", "all set", "done"];

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Promise {
    pub name: &'static str,
    pub kept: bool,
    pub detail: String,
}

fn promise(name: &'static str, kept: bool, detail: impl Into<String>) -> Promise {
    Promise { name, kept, detail: detail.into() }
}

pub(crate) fn judge(story: &Story) -> Vec<Promise> {
    let mut promises = vec![one_booking(story)];
    if !story.faults.kill {
        promises.push(acknowledged_in_time(story));
    }
    promises.push(no_success_before_commit(story));
    if !story.faults.kill {
        promises.push(stops_for_the_caller(story));
    }
    promises.push(work_goes_on(story));
    promises.push(news_waits(story));
    promises.push(confirmed_once(story));
    promises.push(heard_by_mark(story));
    promises.push(history_equals_heard(story));
    promises.push(model_forgets_the_unheard(story));
    promises.push(timestamps_in_order(story));
    promises.push(protocol_kept(story));
    promises.push(went_to_the_end(story));
    promises
}

fn one_booking(story: &Story) -> Promise {
    let bookings = &story.report.bookings;
    let attempts: u32 = story.report.attempts.values().sum();
    let references: Vec<&str> = bookings.iter().map(|booking| booking.reference.as_str()).collect();
    let kept = bookings.len() == 1 && story.report.effects.values().all(|effects| *effects == 1);
    let asked = count(attempts as usize, "request");
    let detail = if references.is_empty() {
        format!("none in its book, {asked} came")
    } else {
        format!("{} in its book ({}), {asked} came", bookings.len(), references.join(", "))
    };
    promise("exactly one booking at the booking system", kept, detail)
}

/// The first step of a call that `found` picks something out of.
fn first_step<T>(call: &CallStory, found: impl Fn(&Input) -> Option<T>) -> Option<(CallTime, T)> {
    call.steps.iter().find_map(|step| Some((step.at_us, found(step.input.as_ref()?)?)))
}

fn acknowledged_in_time(story: &Story) -> Promise {
    const NAME: &str = "the request is acknowledged within its budget";
    let Some((call, heard)) = story.heard(&[ACKNOWLEDGING]).next() else {
        return promise(NAME, false, "no acknowledgement was heard");
    };
    let proposed =
        first_step(call, |input| matches!(input, Input::Model(ModelEvent::ToolCallReceived { .. })).then_some(()));
    let admitted = first_step(call, |input| {
        if let Input::Work(WorkEvent::Admitted { inline_wait_ms, .. }) = input { Some(*inline_wait_ms) } else { None }
    });
    let (Some((proposed_at, ())), Some((_, inline_wait_ms))) = (proposed, admitted) else {
        return promise(NAME, false, "no tool call was seen to be admitted");
    };
    let budget_ms = u64::from(inline_wait_ms) + ACCEPTANCE_SLACK_MS;
    let took_ms = heard.from_us.saturating_sub(call.opened_us + proposed_at.0) / 1_000;
    let since_speech = call.audible("builtin:caller_request").map_or_else(String::new, |(_, end)| {
        format!(", {} ms after the caller's last sound", heard.from_us.saturating_sub(end) / 1_000)
    });
    let detail = format!("heard {took_ms} ms after the tool call (budget {budget_ms} ms){since_speech}");
    promise(NAME, took_ms <= budget_ms, detail)
}

fn no_success_before_commit(story: &Story) -> Promise {
    const NAME: &str = "no word of success before the booking system confirmed";
    let Some(committed_us) = story.committed_us else {
        return promise(NAME, false, "nothing was booked at all");
    };
    let mut early = Vec::new();
    for response in story.model.sessions.iter().flat_map(|session| &session.responses) {
        if story.model_zero_us + (response.created_us as i64) < committed_us as i64 {
            for text in &response.texts {
                let lower = text.to_lowercase();
                early.extend(
                    SUCCESS_WORDS.iter().filter(|word| has_words(&lower, word)).map(|word| format!("“{word}”")),
                );
            }
        }
    }
    let claimed =
        story.heard(&CONFIRMING).filter(|(call, heard)| call.dialled_us + heard.from_us < committed_us).count();
    let detail = if early.is_empty() && claimed == 0 {
        format!("confirmed at {:.2} s; none generated or heard before", committed_us as f64 / 1e6)
    } else {
        format!("generated before: {}; confirmations heard before: {claimed}", early.join(", "))
    };
    promise(NAME, early.is_empty() && claimed == 0, detail)
}

/// `words` occur in `text` with nothing of a word around them.
fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

fn stops_for_the_caller(story: &Story) -> Promise {
    const NAME: &str = "talked over, the agent stops";
    let Some((call, heard)) = story.heard(&[ACKNOWLEDGING]).next() else {
        return promise(NAME, false, "no acknowledgement was heard");
    };
    let Some((onset_us, _)) = call.audible("builtin:caller_talk_over") else {
        return promise(NAME, false, "the caller did not get to talk over it");
    };
    let ms = heard.to_us.saturating_sub(onset_us) / 1_000;
    let kept = !heard.is_whole() && heard.from_us < onset_us && ms <= STOP_WITHIN_MS;
    let detail = format!(
        "silent {ms} ms after the caller's first sound ({STOP_WITHIN_MS} ms at most); {} of {} ms were heard",
        heard.heard_ms, heard.total_ms
    );
    promise(NAME, kept, detail)
}

fn work_goes_on(story: &Story) -> Promise {
    let name = if story.faults.kill { "the crash loses no operation" } else { "the interruption cancels no operation" };
    let states: Vec<String> = story
        .operations()
        .map(|known| {
            let tries: Vec<String> = known.attempts.iter().map(attempt_in_words).collect();
            format!("{} {} ({})", known.operation.tool, known.operation.status.as_str(), tries.join(", then "))
        })
        .collect();
    let committed = story.operations().filter(|known| known.operation.status == OperationStatus::Committed).count();
    promise(name, committed == 1 && states.len() == 1, states.join("; "))
}

fn news_waits(story: &Story) -> Promise {
    const NAME: &str = "the news is never told into the caller's words";
    let mut over = Vec::new();
    for (call, heard) in story.heard(&CONFIRMING) {
        for said in &call.result.said {
            let Some((first, last)) = audible_bytes(&said.mulaw) else { continue };
            let (from, to) = (said.at_us + first as u64 * 125, said.at_us + last as u64 * 125);
            if (from..to).contains(&heard.from_us) {
                over.push(said.file.clone());
            }
        }
    }
    let mut judged: Vec<(GateReason, String)> = Vec::new();
    for step in story.calls.iter().flat_map(|call| &call.steps) {
        if let Some(Command::Explain(Decision::GateJudged { decision, reason, .. })) = &step.command {
            judged.push((*reason, format!("{} ({})", decision_in_words(*decision), reason_in_words(*reason))));
        }
    }
    // Without faults the booking is timed to come while the caller talks; then the gate must have said so.
    let faultless = !story.faults.kill && !story.faults.lose_answer;
    let held = judged.first().is_some_and(|(reason, _)| *reason == GateReason::CallerSpeaking);
    let reasons = once_each(judged.into_iter().map(|(_, words)| words));
    let detail = if over.is_empty() {
        format!("the gate said: {}", reasons.join(", then "))
    } else {
        format!("told over {}; the gate said: {}", over.join(", "), reasons.join(", then "))
    };
    promise(NAME, over.is_empty() && !reasons.is_empty() && (held || !faultless), detail)
}

/// In the order in which they came first; the live view has each time.
fn once_each(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for word in words {
        if !seen.contains(&word) {
            seen.push(word);
        }
    }
    seen
}

fn confirmed_once(story: &Story) -> Promise {
    let name = if story.faults.kill {
        "the confirmation is heard once, on the next call"
    } else {
        "the confirmation is heard once, and whole"
    };
    let hearings: Vec<(&CallStory, &Heard)> = story.heard(&CONFIRMING).collect();
    let whole = hearings.iter().filter(|(_, heard)| heard.is_whole()).count();
    let on_the_right_call = hearings.iter().all(|(call, _)| !call.killed);
    let said: Vec<String> = hearings
        .iter()
        .map(|(call, heard)| {
            let at = (call.dialled_us + heard.from_us) as f64 / 1e6;
            format!("{} of {} ms at {at:.2} s", heard.heard_ms, heard.total_ms)
        })
        .collect();
    let detail = if said.is_empty() { "never".to_owned() } else { said.join(", ") };
    promise(name, hearings.len() == 1 && whole == 1 && on_the_right_call, detail)
}

fn heard_by_mark(story: &Story) -> Promise {
    let states: Vec<String> = story.deliveries().map(delivery_in_words).collect();
    let heard = story.deliveries().filter(|delivery| delivery.state == DeliveryState::Heard).count();
    let detail = if states.is_empty() { "there is no delivery".to_owned() } else { states.join("; ") };
    if story.faults.drop_marks {
        // Nothing may be claimed without evidence.
        return promise("without marks nothing is claimed to be heard", heard == 0 && !states.is_empty(), detail);
    }
    promise("the delivery is on record as heard, by mark", heard == 1 && states.len() == 1, detail)
}

/// What the server says that was heard, against the ear: proven ≤ heard ≤ possible, for each sound in order.
fn history_equals_heard(story: &Story) -> Promise {
    const NAME: &str = "what the server says was heard was heard";
    let (mut compared, mut wrong) = (0, Vec::new());
    for call in &story.calls {
        let claims: Vec<&PlaybackEnd> = call
            .steps
            .iter()
            .filter_map(|step| {
                if let Some(Command::Explain(Decision::PlaybackEnded(end))) = &step.command { Some(end) } else { None }
            })
            .filter(|end| end.possible.ms().0 > 0)
            .collect();
        let heard = &call.hearing.heard;
        // A killed server had no time to judge the sound that it was playing.
        let unjudged = heard.len().saturating_sub(claims.len());
        if claims.len() > heard.len() || unjudged > usize::from(call.killed) {
            wrong.push(format!("{} claimed, {} heard", count(claims.len(), "sound"), heard.len()));
        }
        for (claim, heard) in claims.iter().zip(heard) {
            compared += 1;
            let (proven, possible) = (u64::from(claim.proven.ms().0), u64::from(claim.possible.ms().0));
            // Without marks the upper bound is a guess that errs to "not heard"; the lower one is none.
            let tolerance_ms = if heard.is_whole() { WHOLE_TOLERANCE_MS } else { CUT_TOLERANCE_MS };
            let too_little = heard.heard_ms > possible + tolerance_ms && !story.faults.drop_marks;
            if proven > heard.heard_ms + tolerance_ms || too_little {
                wrong.push(format!("{proven} to {possible} ms claimed, {} ms heard", heard.heard_ms));
            }
        }
        if call.hearing.unknown_ms > 0 {
            wrong.push(format!("{} ms of sound that nobody generated", call.hearing.unknown_ms));
        }
    }
    if story.missed {
        wrong.push("live events were lost".to_owned());
    }
    let detail = if wrong.is_empty() { format!("{} compared", count(compared, "sound")) } else { wrong.join("; ") };
    promise(NAME, wrong.is_empty() && compared > 0, detail)
}

fn model_forgets_the_unheard(story: &Story) -> Promise {
    const NAME: &str = "the model remembers no more than was heard";
    let (mut cut, mut wrong) = (Vec::new(), Vec::new());
    let truncations: Vec<_> = story.model.sessions.iter().flat_map(|session| &session.truncations).collect();
    for call in story.calls.iter().filter(|call| !call.killed) {
        for heard in call.hearing.heard.iter().filter(|heard| !heard.is_whole()) {
            let near = truncations.iter().find(|t| {
                let kept_ms = t.audio_end_ms.max(0) as u64;
                let no_more = kept_ms <= heard.heard_ms + CUT_TOLERANCE_MS;
                // Without marks less is remembered, never more.
                let no_less = kept_ms + CUT_TOLERANCE_MS >= heard.heard_ms || story.faults.drop_marks;
                t.accepted && no_more && no_less
            });
            match near {
                Some(t) => cut.push(format!("cut at {} ms, {} ms heard", t.audio_end_ms, heard.heard_ms)),
                None => wrong.push(format!("{} of {} ms heard and not cut there", heard.heard_ms, heard.total_ms)),
            }
        }
    }
    let refused = truncations.iter().filter(|t| !t.accepted).count();
    if refused > 0 {
        wrong.push(format!("{} refused by the model", count(refused, "cut")));
    }
    let detail = match (wrong.is_empty(), cut.is_empty()) {
        (true, true) => "nothing was cut".to_owned(),
        (true, false) => cut.join("; "),
        (false, _) => wrong.join("; "),
    };
    promise(NAME, wrong.is_empty(), detail)
}

fn timestamps_in_order(story: &Story) -> Promise {
    const NAME: &str = "requested, admitted, committed and observed stand on record, in order";
    let mut told = Vec::new();
    let mut kept = true;
    for operation in story.operations().map(|known| &known.operation) {
        let (requested, admitted) = (operation.tool_requested_at, operation.action_admitted_at);
        let (Some(committed), Some(observed)) = (operation.effect_committed_at, operation.result_observed_at) else {
            kept = false;
            told.push("one of them is missing".to_owned());
            continue;
        };
        kept &= requested <= admitted && admitted <= committed && committed <= observed;
        told.push(format!(
            "+{} ms admitted, +{} ms committed, +{} ms observed",
            admitted.0 - requested.0,
            committed.0 - requested.0,
            observed.0 - requested.0
        ));
    }
    promise(NAME, kept && !told.is_empty(), told.join("; "))
}

fn protocol_kept(story: &Story) -> Promise {
    const NAME: &str = "nothing that Twilio would complain of";
    let mut wrong: Vec<String> = Vec::new();
    for call in &story.calls {
        wrong.extend(call.result.violations.iter().map(|v| format!("{}: {}", v.code, v.detail)));
        wrong.extend(call.result.streams.iter().filter_map(|s| s.error).map(|code| format!("stream error {code}")));
    }
    let marks: usize = story.calls.iter().map(|call| call.result.marks.len()).sum();
    let clears: usize = story.calls.iter().map(|call| call.result.clears.len()).sum();
    let errors: Vec<String> = story
        .model
        .sessions
        .iter()
        .flat_map(|session| &session.errors)
        .map(|error| format!("model: {}", error.message))
        .collect();
    wrong.extend(errors);
    let detail = if wrong.is_empty() {
        format!("{}, {}; the model refused nothing", count(marks, "mark"), count(clears, "clear"))
    } else {
        wrong.join("; ")
    };
    promise(NAME, wrong.is_empty(), detail)
}

fn went_to_the_end(story: &Story) -> Promise {
    const NAME: &str = "each call went to its end, and the server stopped when asked";
    let mut wrong = Vec::new();
    for call in &story.calls {
        let fine = if call.killed {
            matches!(call.result.end, CallEnd::WebhookFailed { .. })
        } else {
            call.result.end == CallEnd::CallerHungUp
        };
        if !fine {
            wrong.push(crate::call::end_in_words(&call.result.end));
        }
        wrong.extend(call.result.timed_out_steps.iter().map(|step| format!("the caller's step {step} waited in vain")));
    }
    if !story.stopped_well {
        wrong.push("the server did not stop well".to_owned());
    }
    let detail = if wrong.is_empty() { count(story.calls.len(), "call") } else { wrong.join("; ") };
    promise(NAME, wrong.is_empty(), detail)
}

#[cfg(test)]
mod tests {
    use super::has_words;

    #[test]
    fn a_word_of_success_is_a_whole_word() {
        assert!(has_words("your table is booked.", "booked"));
        assert!(has_words("all set, see you", "all set"));
        assert!(!has_words("the booking system", "booked"));
        assert!(!has_words("an abandoned table", "done"));
    }
}

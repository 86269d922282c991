//! `call --simulate`: a recording calls a running server, over the simulated carrier.

use crate::args::{CallArgs, LineArgs};
use crate::onlooker::Onlooker;
use crate::terminal::Style;
use crate::{FAILED, FINE, sound};
use anyhow::{Context, bail};
use sim::audio_file::{Sound, Truncated};
use sim::phone::{
    CallEnd, CallResult, CallScript, Happened, PhoneCall, PhoneConfig, Step, TimelineEvent, WaitForAgent,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::sync::mpsc;

/// Events under way to the screen; more at once are only in the result.
const EVENTS_IN_FLIGHT: usize = 1_024;
/// How long the agent may be silent before the caller takes the floor, and before the caller hangs up at the end.
const BEFORE_SPEAKING_MS: u32 = 700;
const BEFORE_HANGING_UP_MS: u32 = 2_500;
/// An agent that says nothing at all is spoken to anyway.
const NO_GREETING_MS: u32 = 6_000;
const NO_ANSWER_MS: u32 = 20_000;

pub(crate) async fn call(args: CallArgs) -> anyhow::Result<ExitCode> {
    let (script, audio_base) = script(&args)?;
    let mut config = phone_config(&args.line)?;
    config.from.clone_from(&args.from);
    config.audio_base = audio_base;
    config.max_seconds = args.max_seconds;
    let (observer, mut seen) = mpsc::channel(EVENTS_IN_FLIGHT);
    config.observer = Some(observer);
    let style = Style::of_stdout(false);
    let json = args.json;
    // Who wants the bare result looks at it by himself.
    let mut onlooker = if json { None } else { Onlooker::at(&args).await? };
    let call = PhoneCall::start(config, &script)?;
    if !json {
        outln!("calling {} from {} ({})", args.line.url, args.from, call.call_sid);
        if onlooker.is_none() {
            outln!(
                "the server's side of it too: give its admin token with --admin-token or ANSWERBACK__SERVER__ADMIN_TOKEN"
            );
        }
    }
    let call_sid = call.call_sid.clone();
    let telling = async {
        loop {
            tokio::select! {
                biased;
                event = seen.recv() => match event {
                    Some(event) => {
                        if let (Some(onlooker), Happened::StreamOpened { .. }) = (&mut onlooker, &event.what) {
                            onlooker.stream_opened(event.at_us);
                        }
                        if !json {
                            tell(style, &event);
                        }
                    }
                    None => break,
                },
                Some(line) = next_of(&mut onlooker, &call_sid) => tell_at(style, line.at_us, line.sgr, &line.text),
            }
        }
    };
    let result = tokio::select! {
        (result, ()) = async { tokio::join!(call.wait(), telling) } => result,
        // Dropping the call breaks its connection, as a handset does that is thrown away.
        _ = tokio::signal::ctrl_c() => bail!("interrupted; the call was dropped"),
    };
    if let Some(path) = &args.record {
        sound::write_mulaw_wav(path, &result.heard_track())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if json {
        outln!("{}", serde_json::to_string_pretty(&result)?);
    } else {
        summary(&result, args.record.as_deref());
        if let Some(onlooker) = onlooker {
            onlooker.on_record(&result.call_sid).await?;
        }
    }
    Ok(if went_well(&result) { FINE } else { FAILED })
}

fn script(args: &CallArgs) -> anyhow::Result<(CallScript, PathBuf)> {
    let folder = |path: &Path| path.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    let of_file = |path: &Path| Ok((CallScript::read(path)?, folder(path)));
    match (&args.script, &args.simulate) {
        (Some(path), _) => of_file(path),
        (None, Some(path)) if path.extension().is_some_and(|ending| ending == "toml") => of_file(path),
        (None, Some(path)) => {
            // Read here only to refuse it before anybody is called; the call reads it again.
            let sound = sim::audio_file::inspect(path).map_err(|error| match error.can_be_converted() {
                true => {
                    anyhow::anyhow!("{error}\n  convert it, for example: ffmpeg -i FILE -ar 8000 -ac 1 question.wav")
                }
                false => error.into(),
            })?;
            errln!("{}: {}", path.display(), what_it_holds(&sound));
            let wait = |quiet_ms, timeout_ms| {
                let (quiet_ms, timeout_ms) = (Some(quiet_ms), Some(timeout_ms));
                Step::WaitForAgent(WaitForAgent { quiet_ms, timeout_ms, ..WaitForAgent::default() })
            };
            let name = path.file_name().and_then(|name| name.to_str()).context("the file's name is not Unicode")?;
            let steps = vec![
                wait(BEFORE_SPEAKING_MS, NO_GREETING_MS),
                Step::Say { file: name.to_owned() },
                wait(BEFORE_HANGING_UP_MS, NO_ANSWER_MS),
                Step::HangUp {},
            ];
            Ok((CallScript { steps }, folder(path)))
        }
        (None, None) => bail!("give a recording with --simulate or a script with --script"),
    }
}

fn what_it_holds(sound: &Sound) -> String {
    let seconds = |bytes: usize| bytes as f64 / 8_000.0;
    let mut text = match sound::audible_bytes(&sound.mulaw) {
        Some((first, last)) => {
            format!(
                "{:.1} s as 8 kHz mu-law, sound in {:.1} s of it",
                seconds(sound.mulaw.len()),
                seconds(last - first)
            )
        }
        None => format!("{:.1} s of silence: the agent will hear nobody", seconds(sound.mulaw.len())),
    };
    if let Some(Truncated { promised, there }) = sound.truncated {
        text += &format!(
            "\n  warning: the file is cut short: its header promises {promised} bytes of sound, {there} are there"
        );
    }
    text
}

/// Pends for ever when nobody looks on.
async fn next_of(onlooker: &mut Option<Onlooker>, call_sid: &str) -> Option<crate::onlooker::Line> {
    match onlooker {
        Some(onlooker) => onlooker.next(call_sid).await,
        None => std::future::pending().await,
    }
}

fn phone_config(line: &LineArgs) -> anyhow::Result<PhoneConfig> {
    let token = line.auth_token.as_deref().context(
        "the server takes signed calls only: give its auth token with --auth-token or ANSWERBACK__TWILIO__AUTH_TOKEN",
    )?;
    if !(line.url.starts_with("http://") || line.url.starts_with("https://")) {
        bail!("{}: the webhook must be an http or https URL, such as http://127.0.0.1:8080/twilio/voice", line.url);
    }
    let mut config = PhoneConfig::new(&line.url, token);
    config.connect_addr = line.connect;
    config.status_url = line.url.strip_suffix("/voice").map(|base| format!("{base}/status"));
    // A server without a public address names ws:// in its TwiML, which Twilio itself would refuse.
    config.allow_plain_ws = line.url.starts_with("http://");
    Ok(config)
}

fn went_well(result: &CallResult) -> bool {
    let ended_well = match &result.end {
        CallEnd::CallerHungUp | CallEnd::ServerHungUp | CallEnd::DocumentEnded => true,
        CallEnd::CallerDropped | CallEnd::WebhookFailed { .. } | CallEnd::TooLong => false,
    };
    ended_well && result.violations.is_empty() && result.heard_ms() > 0
}

fn tell(style: Style, event: &TimelineEvent) {
    let (sgr, text) = match &event.what {
        Happened::StreamOpened { stream_sid } => ("2", format!("media stream {stream_sid} is open")),
        Happened::StreamFailed { code, reason } => ("31", format!("the stream failed ({code}): {reason}")),
        Happened::StreamClosed { code } => (
            "2",
            code.map_or_else(
                || "the stream is closed".to_owned(),
                |code| format!("the server closed the stream ({code})"),
            ),
        ),
        Happened::FetchFailed { url, reason } => ("31", format!("{url}: {reason}")),
        Happened::CallerSpeaks { file } => ("36", format!("caller speaks: {file}")),
        Happened::CallerSilent => ("36", "caller is silent".to_owned()),
        Happened::AgentAudible => ("32", "the agent is heard".to_owned()),
        Happened::AgentSilent => ("32", "the agent is silent".to_owned()),
        Happened::ClearReceived { dropped_ms, .. } => {
            ("33", format!("cleared: {dropped_ms} ms of the agent will not be heard"))
        }
        Happened::DigitSent { digit } => ("36", format!("caller presses {digit}")),
        Happened::CarrierSpeaks { text } => ("33", format!("the carrier says: {text}")),
        Happened::ViolationSeen { code } => ("31", format!("a message that Twilio would complain of ({code})")),
        Happened::StepDone { step, timed_out: true } => ("33", format!("step {step} waited in vain")),
        Happened::CallEnded => ("2", "the call is over".to_owned()),
        Happened::Dialled
        | Happened::DocumentReceived { .. }
        | Happened::StepStarted { .. }
        | Happened::StepDone { .. }
        | Happened::MarkReceived { .. }
        | Happened::MarkReturned { .. }
        | Happened::MarkSwallowed { .. } => return,
    };
    tell_at(style, event.at_us, sgr, &text);
}

fn tell_at(style: Style, at_us: u64, sgr: &str, text: &str) {
    outln!("{:>8.2} s  {}", at_us as f64 / 1e6, style.paint(sgr, text));
}

fn summary(result: &CallResult, recorded: Option<&Path>) {
    outln!();
    outln!("end         {}", end_in_words(&result.end));
    if result.heard.is_empty() {
        outln!("heard       nothing of the agent: the server's log says why");
    } else {
        outln!("heard       {} ms of the agent in {}", result.heard_ms(), stretches(result.heard.len()));
    }
    let returned = result.marks.iter().filter(|mark| mark.returned_us.is_some()).count();
    outln!("marks       {} received, {returned} returned", result.marks.len());
    for clear in &result.clears {
        let after =
            clear.caller_spoke_ms.map_or_else(String::new, |ms| format!(", {ms} ms after the caller began to speak"));
        outln!("cleared     {} ms at {:.2} s{after}", clear.dropped_ms, clear.at_us as f64 / 1e6);
    }
    if !result.underruns.is_empty() {
        outln!("holes       {} in the agent's sound", result.underruns.len());
    }
    for violation in &result.violations {
        outln!("violation   {}: {}", violation.code, violation.detail);
    }
    if let Some(path) = recorded {
        outln!("recorded    {}", path.display());
    }
}

fn stretches(n: usize) -> String {
    if n == 1 { "one stretch".to_owned() } else { format!("{n} stretches") }
}

/// How a call ended, for people, with what to do next where something is wrong.
pub(crate) fn end_in_words(end: &CallEnd) -> String {
    match end {
        CallEnd::CallerHungUp => "the caller hung up".to_owned(),
        CallEnd::CallerDropped => "the caller's connection broke".to_owned(),
        CallEnd::ServerHungUp => "the server hung up".to_owned(),
        CallEnd::DocumentEnded => "the server's document was at its end".to_owned(),
        CallEnd::WebhookFailed { reason } if reason.contains("403") => {
            format!("refused: {reason}. Does --auth-token match the server's, and --url its public_url?")
        }
        CallEnd::WebhookFailed { reason } => format!("the webhook failed: {reason}. Is the server running there?"),
        CallEnd::TooLong => "it reached its longest time".to_owned(),
    }
}

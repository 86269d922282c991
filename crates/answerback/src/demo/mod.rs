//! `demo`: one call from end to end. The outside world runs in this process, the server in one of its own.

mod child;
mod ear;
mod lanes;
pub(crate) mod moment;
pub(crate) mod narrate;
mod promises;
mod story;
mod verdict;
pub(crate) mod world;

use crate::args::DemoArgs;
use crate::live::{self, AdminApi, Live};
use crate::terminal::Style;
use crate::{FAILED, FINE};
use anyhow::{Context, bail};
use child::Running;
use lanes::Lanes;
use moment::{Lane, Moment, Tone};
use narrate::Narrator;
use operations::SessionState;
use operations::history::SessionHistory;
use sim::booking::Switches;
use sim::phone::{CallScript, Happened, PhoneCall, Step, WaitForAgent};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use story::{CallStory, Story};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use verdict::Verdict;
use vocab::delivery::DeliveryState;
use world::{Faults, Folder, World};

const CALLER: &str = include_str!("caller.toml");
const CALLER_CUT_OFF: &str = include_str!("caller_cut_off.toml");
const CALLER_AGAIN: &str = include_str!("caller_again.toml");

/// How often the booking system's book is looked into and the screen drawn.
const TICK: Duration = Duration::from_millis(20);
/// After the caller hung up, for the server to end the call on its side.
const CALL_END_CAP: Duration = Duration::from_secs(4);
/// For the last writes of a call to be on record.
const RECORD_CAP: Duration = Duration::from_secs(4);
const RECORD_EVERY: Duration = Duration::from_millis(100);
/// Events of the phone under way to us.
const PHONE_EVENTS: usize = 4_096;

pub(crate) async fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let faults = Faults {
        kill: args.kill,
        drop_marks: args.drop_marks,
        lose_answer: args.backend_timeout,
        answer_twice: args.answer_twice,
    };
    let style = Style::of_stdout(args.plain);
    let mut folder = Folder::make(args.keep.as_deref())?;
    let mut lanes = Lanes::new(style, !args.json);
    // Dropping the play ends the server's process; dropping the folder removes it.
    let story = tokio::select! {
        played = play(&folder.path, faults, args.seed, &mut lanes) => played?,
        () = interrupted() => bail!("interrupted; the server was ended and its files were removed"),
    };
    let verdict = Verdict::of(&story);
    if !verdict.all_kept() {
        folder.keep();
    }
    let kept = folder.is_kept().then_some(folder.path.as_path());
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&verdict.json(&story, kept))?);
    } else {
        verdict.print(&story, style);
        if let Some(path) = kept {
            outln!("Config, database, logs and bookings are in {}", path.display());
        }
    }
    Ok(if verdict.all_kept() { FINE } else { FAILED })
}

/// Ctrl-C, or a supervisor that wants us gone.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}

async fn play(folder: &Path, faults: Faults, seed: u64, lanes: &mut Lanes) -> anyhow::Result<Story> {
    let began = Instant::now();
    lanes.aside("starting a booking system and a realtime model, both simulated, in this process ...");
    let world = World::build(folder, faults, seed).await?;
    let client = reqwest::Client::builder().no_proxy().build().context("the HTTP client cannot be made")?;
    let log = folder.join("server.log");
    lanes.aside("starting the server in a process of its own ...");
    let server = Running::start(&world, &log, &client).await?;
    lanes.aside(&format!("ready at http://{} after {} ms; a caller dials", server.addr, began.elapsed().as_millis()));
    lanes.head();

    let zero = Instant::now();
    let mut director =
        Director { world: &world, client: &client, lanes, zero, committed_us: None, killed_us: None, missed: false };
    let mut calls = Vec::new();
    let server = if faults.kill {
        let (call, survivor) = director.call(server, CALLER_CUT_OFF, true).await?;
        calls.push(call);
        if let Some(survivor) = survivor {
            // Nothing was booked, so there was no moment to kill it in: the verdict will say so.
            survivor.kill().await?;
        }
        director.lanes.rest();
        director.lanes.aside("\nthe server starts again on the same data, and the same caller calls again");
        let server = Running::start(&world, &log, &client).await?;
        director.lanes.pass(director.now_us());
        director.lanes.head();
        let (call, server) = director.call(server, CALLER_AGAIN, false).await?;
        calls.push(call);
        server
    } else {
        let (call, server) = director.call(server, CALLER, false).await?;
        calls.push(call);
        server
    };
    let server = server.context("the server is gone")?;
    let sessions = director.on_record(&server, &calls).await?;
    let (committed_us, killed_us, missed) = (director.committed_us, director.killed_us, director.missed);
    let moments = lanes.finish();
    let stopped_well = server.stop().await;
    Ok(Story {
        faults,
        seed,
        took_ms: began.elapsed().as_millis() as u64,
        calls,
        committed_us,
        killed_us,
        missed,
        report: world.booking.report().await,
        model: world.model.record(),
        model_zero_us: -(zero.duration_since(world.model_started).as_micros() as i64),
        sessions,
        moments,
        stopped_well,
    })
}

struct Director<'a> {
    world: &'a World,
    client: &'a reqwest::Client,
    lanes: &'a mut Lanes,
    /// The first call was dialled.
    zero: Instant,
    committed_us: Option<u64>,
    killed_us: Option<u64>,
    missed: bool,
}

impl Director<'_> {
    fn admin(&self, server: &Running) -> AdminApi {
        AdminApi { base: format!("http://{}", server.addr), token: self.world.admin_token.clone() }
    }

    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    /// One call to its end. With `kill`, the server is killed as soon as the booking stands in the backend's book.
    async fn call(
        &mut self,
        server: Running,
        script: &str,
        kill: bool,
    ) -> anyhow::Result<(CallStory, Option<Running>)> {
        let mut script = CallScript::parse(script).context("the demo's caller script")?;
        if self.world.faults.drop_marks {
            outwait_lost_marks(&mut script);
        }
        let mut live = live::subscribe(&self.admin(&server), self.client).await?;
        let (observer, mut seen) = mpsc::channel(PHONE_EVENTS);
        let mut phone = self.world.phone(server.addr);
        phone.observer = Some(observer);
        let mut server = Some(server);
        let mut under_way = UnderWay { dialled_us: self.now_us(), ..UnderWay::default() };
        let call = PhoneCall::start(phone, &script)?;
        let call_sid = call.call_sid.clone();
        let over = call.wait();
        tokio::pin!(over);
        let mut result = None;
        let mut ended_by = None;
        let mut server_ended = false;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // The phone first: its stream is open before the server's first step.
                biased;
                Some(event) = seen.recv() => {
                    if event.what == Happened::Dialled {
                        // The zero of the phone's own clock.
                        under_way.dialled_us = self.now_us();
                    } else if matches!(event.what, Happened::StreamOpened { .. }) {
                        under_way.opened_us.get_or_insert(event.at_us);
                    }
                    let moments = under_way.narrator.of_phone(&event, under_way.dialled_us);
                    self.lanes.add(moments);
                }
                event = live.recv(), if !server_ended => match event {
                    Some(Live::Step { call_sid: of, step }) if of == call_sid => self.take_step(&mut under_way, *step),
                    Some(Live::CallEnded { call_sid: of, .. }) if of == call_sid => server_ended = true,
                    Some(Live::Step { .. } | Live::CallEnded { .. }) => {}
                    Some(Live::Missed) => self.missed = true,
                    None if server.is_none() => server_ended = true,
                    None => {
                        let tail = server.as_ref().map(Running::log_tail).unwrap_or_default();
                        bail!("the server ended in the middle of the call\n{tail}");
                    }
                },
                done = &mut over, if result.is_none() => {
                    result = Some(done);
                    ended_by = Some(Instant::now() + CALL_END_CAP);
                }
                _ = ticks.tick() => {
                    self.look_into_the_book().await;
                    if kill && self.committed_us.is_some() && let Some(victim) = server.take() {
                        let now_us = self.now_us();
                        victim.kill().await?;
                        self.killed_us = Some(now_us);
                        self.lanes.add(killed(now_us));
                        // The hurt is done: from now on the backend answers at once.
                        self.world.booking.set_switches(|switches| *switches = Switches::default());
                    }
                    let now_us = self.now_us();
                    self.lanes.advance(now_us);
                }
            }
            if ended_by.is_some_and(|cap| server_ended || Instant::now() >= cap) && seen.is_empty() {
                break;
            }
        }
        let result = result.context("the call never ended")?;
        let hearing = ear::listen(&result, &self.world.lines);
        let story = CallStory {
            dialled_us: under_way.dialled_us,
            opened_us: under_way.opened_us.unwrap_or(0),
            result,
            hearing,
            steps: under_way.steps,
            killed: server.is_none(),
        };
        Ok((story, server))
    }

    fn take_step(&mut self, under_way: &mut UnderWay, step: live::Step) {
        let opened_us = under_way.dialled_us + under_way.opened_us.unwrap_or(0);
        let model = &self.world.model;
        let words = || {
            let record = model.record();
            let texts = record.sessions.last()?.responses.last()?.texts.join(" ");
            (!texts.is_empty()).then_some(texts)
        };
        let moments = under_way.narrator.of_step(&step, opened_us, words);
        self.lanes.add(moments);
        under_way.steps.push(step);
    }

    async fn look_into_the_book(&mut self) {
        if self.committed_us.is_none() && !self.world.booking.report().await.bookings.is_empty() {
            let now_us = self.now_us();
            self.committed_us = Some(now_us);
            let text = "the booking system has it in its book";
            self.lanes.add([Moment::says(now_us, Lane::Work, text).in_tone(Tone::Good)]);
        }
    }

    /// What the server has on record of these calls, when its last writes are done.
    async fn on_record(&self, server: &Running, calls: &[CallStory]) -> anyhow::Result<Vec<SessionHistory>> {
        let until = Instant::now() + RECORD_CAP;
        loop {
            let mut sessions: Vec<SessionHistory> = Vec::new();
            for call in calls {
                let history = live::history(&self.admin(server), self.client, &call.result.call_sid).await?;
                for session in history.sessions {
                    if sessions.iter().all(|known| known.session.id != session.session.id) {
                        sessions.push(session);
                    }
                }
            }
            // Without marks a delivery stays uncertain: nothing more is coming.
            let told = |state: DeliveryState| state.is_final() || state == DeliveryState::Uncertain;
            let settled = sessions.iter().flat_map(|session| &session.deliveries).all(|delivery| told(delivery.state));
            // A killed server did not hear that its call is over.
            let over = sessions.iter().map(|known| &known.session).all(|session| {
                let killed = calls.iter().any(|call| call.killed && call.result.call_sid == session.call_sid.as_str());
                killed || session.state == SessionState::Ended
            });
            if (settled && over) || Instant::now() >= until {
                return Ok(sessions);
            }
            tokio::time::sleep(RECORD_EVERY).await;
        }
    }
}

/// A call while it runs.
#[derive(Default)]
struct UnderWay {
    dialled_us: u64,
    /// On the call's own axis.
    opened_us: Option<u64>,
    narrator: Narrator,
    steps: Vec<live::Step>,
}

/// Without marks the server gives them up only some time after its last sound (`playback.mark_grace_ms`). A caller who speaks
/// before that counts as cutting in, and the news as not heard: when in doubt, not heard.
fn outwait_lost_marks(script: &mut CallScript) {
    /// The grace is 2,000 ms.
    const PATIENCE_MS: u32 = 2_600;
    let talks_over =
        script.steps.iter().position(|step| matches!(step, Step::WaitForAgent(wait) if wait.heard_ms.is_some()));
    for step in script.steps.iter_mut().skip(talks_over.unwrap_or(0)) {
        if let Step::WaitForAgent(WaitForAgent { quiet_ms: Some(ms), .. }) = step {
            *ms = PATIENCE_MS.max(*ms);
        }
    }
}

/// Every clock stops with the process.
fn killed(at_us: u64) -> Vec<Moment> {
    let text = "SIGKILL: the server is gone; the backend's answer finds nobody";
    [Lane::Model, Lane::Sent, Lane::Gate]
        .map(|lane| Moment::turns(at_us, lane, false))
        .into_iter()
        .chain([Moment::says(at_us, Lane::Work, text).turning(false).in_tone(Tone::Cut)])
        .collect()
}

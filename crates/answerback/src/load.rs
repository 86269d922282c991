//! `load`: the front of `sim::load`.

use crate::args::LoadArgs;
use crate::terminal::count;
use crate::{FAILED, FINE};
use anyhow::Context;
use sim::load::{LoadPlan, Target};
use std::process::ExitCode;

pub(crate) async fn load(args: LoadArgs) -> anyhow::Result<ExitCode> {
    let target = match args.stream {
        Some(url) => Target::Stream { url },
        None => Target::Webhook {
            voice_url: args.line.url,
            auth_token: args.line.auth_token.context(
                "the server takes signed calls only: give its auth token with --auth-token or \
                 ANSWERBACK__TWILIO__AUTH_TOKEN, or an unsigned socket with --stream",
            )?,
            connect_addr: args.line.connect,
        },
    };
    let judges_by_ear = matches!(target, Target::Webhook { .. });
    let mut plan = LoadPlan::new(target, args.calls, args.seconds);
    plan.has_ears = judges_by_ear;
    plan.warm_up_seconds = args.warm_up;
    plan.ramp_ms = args.ramp_ms;
    plan.pid = args.pid;
    plan.speak_every_ms = args.speak_every_ms;
    plan.speech_ms = args.speech_ms;
    let expected = args.warm_up + args.seconds + args.ramp_ms * args.calls as u64 / 1_000;
    errln!("{}, about {expected} s", count(args.calls, "call"));
    let report = sim::load::run(plan).await?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        out!("{report}");
    }
    Ok(if report.connected == report.calls { FINE } else { FAILED })
}

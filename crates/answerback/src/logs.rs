//! Logs go to standard error. Numbers, words and arguments of callers are logged at debug and below only (each place that
//! logs keeps to it); this file says aloud when a filter lets them through.

use crate::args::LogFormat;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Starts logging for this process. `RUST_LOG` filters; `quiet` is what holds without it.
pub(crate) fn start(format: LogFormat, quiet: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(quiet.into()).from_env_lossy();
    let personal = filter.max_level_hint().is_none_or(|level| level >= LevelFilter::DEBUG);
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // An error means that a subscriber is there already, which can only be ours.
    let _ = match format {
        LogFormat::Text => {
            let colours = crate::terminal::stderr_takes_colours();
            builder.with_ansi(colours).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if personal {
        tracing::warn!("logging at debug or below: these logs hold callers' numbers and words");
    }
}

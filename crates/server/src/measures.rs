//! `/metrics`: the process's Prometheus recorder, with the unit and the buckets of every measure.
//!
//! Labels are bounded words (tool, agent, reason, end), never a call, a caller or an operation.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::Mutex;
use std::sync::PoisonError;

/// Histograms, milliseconds, by the scale on which a difference matters.
const FAST_MS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1_280.0, 5_000.0];
/// Conversation scale: 20 ms is a frame, 200 ms a turn gap between people, 1 s a silence that one notices.
const HEARD_MS: &[f64] = &[
    10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 400.0, 500.0, 700.0, 1_000.0, 1_500.0, 2_000.0, 3_000.0,
    5_000.0, 10_000.0,
];
/// Work scale: from a quick lookup to a job that outlives the call.
const WORK_MS: &[f64] = &[
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_000.0,
    4_000.0,
    8_000.0,
    15_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
    1_800_000.0,
];

/// Name, buckets, meaning.
const HISTOGRAMS: &[(&str, &[f64], &str)] = &[
    (
        "speech_stop_to_acceptance_audio_ms",
        HEARD_MS,
        "from the end of the caller's speech to the first sound of the acknowledgement",
    ),
    ("barge_in_to_playback_stop_ms", HEARD_MS, "from detected caller speech to the clear on the wire"),
    ("operation_accept_to_start_ms", WORK_MS, "from admission to the first attempt"),
    ("operation_duration_ms", WORK_MS, "from admission to the end of the operation"),
    ("operation_complete_to_delivery_ready_ms", FAST_MS, "from the operation's end to its delivery being ready"),
    ("delivery_ready_to_first_audio_ms", WORK_MS, "how long a ready delivery waited to be heard"),
    ("generated_to_played_gap_ms", HEARD_MS, "from generated sound to its played mark"),
    (
        "commit_to_audible_acknowledgement_ms",
        HEARD_MS,
        "from the committed admission to the first sound of the acknowledgement",
    ),
    ("admission_latency_ms", FAST_MS, "from the tool call to the committed admission"),
    (
        "cancelled_response_unheard_ms",
        HEARD_MS,
        "sound that was generated and never heard because its response was cancelled",
    ),
    ("stream_accept_ms", HEARD_MS, "from the upgrade to the call's task"),
];

const COUNTERS: &[(&str, &str)] = &[
    ("duplicate_side_effect_total", "effects that happened twice at a backend"),
    ("duplicate_delivery_total", "results that were spoken twice"),
    ("stale_delivery_total", "deliveries that were out of date when they could have been heard"),
    ("next_turn_resync_total", "results that went into the next turn instead of a response of their own"),
    ("tool_timeout_total", "attempts that ran into their deadline"),
    ("tool_retry_total", "attempts after the first"),
    ("tool_duplicate_suppressed_total", "tool calls that were the same intent as one already admitted"),
    ("late_result_total", "results that came after the turn had changed"),
    ("operation_cancel_requested_total", "cancellations asked for"),
    ("operation_cancel_confirmed_total", "cancellations that the system of record confirmed"),
    ("operation_compensation_total", "compensations run"),
    ("handoff_pending_total", "handoffs with operations pending"),
    ("reconcile_failure_total", "reconciliations that could not settle an operation"),
    ("call_panics_total", "calls that ended by a panic"),
    ("http_panics_total", "requests that ended by a panic"),
    ("connections_refused_total", "connections over the cap"),
    ("calls_without_model_total", "streams that ended because no model session could be opened"),
];

/// Counters that always carry a label and therefore start absent.
const LABELLED: &[(&str, &str)] = &[
    ("streams_ended_total", "streams by how they ended"),
    ("streams_refused_total", "sockets that were closed before a call could run, by reason"),
    ("webhooks_refused_total", "webhooks that were refused, by reason"),
    ("calls_turned_away_total", "calls that were answered with busy, by reason"),
    ("carrier_stream_errors_total", "stream errors that the carrier reported, by its code"),
];

/// The exposition of the process's metrics.
#[derive(Clone)]
pub struct Measures {
    handle: PrometheusHandle,
}

/// Another recorder owns this process's metrics, so ours cannot.
#[derive(Debug, thiserror::Error)]
#[error("metrics recorder: {0}")]
pub struct MeasuresUnavailable(String);

impl Measures {
    /// Installs the recorder; later calls in the same process return the same one.
    pub fn of_this_process() -> Result<Self, MeasuresUnavailable> {
        static INSTALLED: Mutex<Option<Measures>> = Mutex::new(None);
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(measures) = installed.as_ref() {
            return Ok(measures.clone());
        }
        let unavailable = |error: &dyn std::fmt::Display| MeasuresUnavailable(error.to_string());
        let mut builder = PrometheusBuilder::new();
        for (name, buckets, _) in HISTOGRAMS {
            builder = builder
                .set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)
                .map_err(|error| unavailable(&error))?;
        }
        // A new `_ms` histogram must not turn into a summary because nobody listed it here.
        builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_ms".to_owned()), WORK_MS)
            .map_err(|error| unavailable(&error))?;
        let measures = Self { handle: builder.install_recorder().map_err(|error| unavailable(&error))? };
        describe();
        *installed = Some(measures.clone());
        Ok(measures)
    }

    /// Prometheus text, version 0.0.4.
    pub fn rendered(&self) -> String {
        self.handle.render()
    }

    /// Moves recorded samples into their buckets. Without it they pile up until somebody scrapes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

fn describe() {
    for (name, _, meaning) in HISTOGRAMS {
        describe_histogram!(*name, Unit::Milliseconds, *meaning);
    }
    for (name, meaning) in COUNTERS {
        describe_counter!(*name, *meaning);
        // A counter that is absent until the first bad event cannot be alerted on.
        metrics::counter!(*name).absolute(0);
    }
    for (name, meaning) in LABELLED {
        describe_counter!(*name, *meaning);
    }
    describe_gauge!("calls_active", "calls that run now");
    metrics::gauge!("calls_active").set(0.0);
    describe_gauge!("operations_unknown", "operations whose effect nobody knows yet");
    metrics::gauge!("operations_unknown").set(0.0);
}

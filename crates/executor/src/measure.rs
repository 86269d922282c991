//! Measures by tool and agent, never by caller. (behaviour.md 9)

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use operations::Operation;
use operations::store::Settled;
use vocab::WallTime;
use vocab::effect::OperationStatus;

const ADMISSION: &str = "admission_latency_ms";
const TO_START: &str = "operation_accept_to_start_ms";
const DURATION: &str = "operation_duration_ms";
const TO_READY: &str = "operation_complete_to_delivery_ready_ms";
const TIMEOUTS: &str = "tool_timeout_total";
const RETRIES: &str = "tool_retry_total";
const SUPPRESSED: &str = "duplicate_suppressed_total";
const UNKNOWN: &str = "operations_unknown";

pub(crate) fn describe() {
    describe_histogram!(ADMISSION, Unit::Milliseconds, "From the model's tool call to its durable admission");
    describe_histogram!(TO_START, Unit::Milliseconds, "From admission to the first request");
    describe_histogram!(DURATION, Unit::Milliseconds, "From admission to a result that can be told");
    describe_histogram!(TO_READY, Unit::Milliseconds, "From the answer to the durable delivery");
    describe_counter!(TIMEOUTS, "Requests without an answer in time");
    describe_counter!(RETRIES, "Requests after the first one of an operation");
    describe_counter!(SUPPRESSED, "Proposals answered from an operation that was there already");
    describe_gauge!(UNKNOWN, "Operations whose outcome nobody knows");
}

pub(crate) fn admitted(operation: &Operation, attached: bool) {
    let (tool, agent) = (operation.tool.0.clone(), operation.agent.0.clone());
    if attached {
        counter!(SUPPRESSED, "tool" => tool, "agent" => agent).increment(1);
    } else {
        let took = operation.action_admitted_at.ms_since(operation.tool_requested_at);
        histogram!(ADMISSION, "tool" => tool, "agent" => agent).record(took as f64);
    }
}

pub(crate) fn sent(operation: &Operation, attempt: u32, now: WallTime) {
    let (tool, agent) = (operation.tool.0.clone(), operation.agent.0.clone());
    if attempt == 1 {
        histogram!(TO_START, "tool" => tool, "agent" => agent)
            .record(now.ms_since(operation.action_admitted_at) as f64);
    } else {
        counter!(RETRIES, "tool" => tool, "agent" => agent).increment(1);
    }
}

pub(crate) fn timed_out(operation: &Operation) {
    counter!(TIMEOUTS, "tool" => operation.tool.0.clone(), "agent" => operation.agent.0.clone()).increment(1);
}

pub(crate) fn settled(settled: &Settled, answered_at: WallTime) {
    let operation = &settled.operation;
    let labels = || (operation.tool.0.clone(), operation.agent.0.clone());
    if operation.status.is_terminal() || operation.status == OperationStatus::Unknown {
        let (tool, agent) = labels();
        histogram!(DURATION, "tool" => tool, "agent" => agent)
            .record(answered_at.ms_since(operation.action_admitted_at) as f64);
    }
    if let Some(delivery) = &settled.delivery {
        let (tool, agent) = labels();
        histogram!(TO_READY, "tool" => tool, "agent" => agent)
            .record(delivery.became_ready_at.ms_since(answered_at) as f64);
    }
}

pub(crate) fn unknown(count: u32) {
    gauge!(UNKNOWN).set(f64::from(count));
}

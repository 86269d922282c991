//! Rows to records. A column that does not say what it must say is `StoreError::Corrupt`, never a guess.

use operations::attempt::{Attempt, Fence};
use operations::audit::AuditRow;
use operations::store::StoreError;
use operations::{Batch, Delivery, Operation, SessionRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, Type};
use vocab::{
    AgentId, AudioMs, BatchId, CallSid, CallerId, DeliveryId, IntentKey, OperationId, ProviderCallId, ResponseId,
    SessionId, StreamSid, ToolName, TurnId, WallTime,
};

pub(super) fn unavailable(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::PoolClosed => StoreError::Closed,
        other => StoreError::Unavailable(other.to_string()),
    }
}

fn get<T: for<'r> Decode<'r, Sqlite> + Type<Sqlite>>(row: &SqliteRow, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| StoreError::Corrupt(format!("{column}: {error}")))
}

fn count(row: &SqliteRow, column: &str) -> Result<u32, StoreError> {
    let number: i64 = get(row, column)?;
    u32::try_from(number).map_err(|_| StoreError::Corrupt(format!("{column}: {number}")))
}

fn at(row: &SqliteRow, column: &str) -> Result<WallTime, StoreError> {
    get(row, column).map(WallTime)
}

fn maybe_at(row: &SqliteRow, column: &str) -> Result<Option<WallTime>, StoreError> {
    Ok(get::<Option<i64>>(row, column)?.map(WallTime))
}

fn flag(row: &SqliteRow, column: &str) -> Result<bool, StoreError> {
    Ok(get::<i64>(row, column)? != 0)
}

/// An enum by its stored word, which is its serde name.
fn word<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, StoreError> {
    let text: String = get(row, column)?;
    serde_json::from_value(Value::String(text)).map_err(|error| StoreError::Corrupt(format!("{column}: {error}")))
}

fn maybe_word<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<Option<T>, StoreError> {
    match get::<Option<String>>(row, column)? {
        Some(_) => word(row, column).map(Some),
        None => Ok(None),
    }
}

fn json<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, StoreError> {
    let text: String = get(row, column)?;
    serde_json::from_str(&text).map_err(|error| StoreError::Corrupt(format!("{column}: {error}")))
}

pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub(super) fn session(row: &SqliteRow) -> Result<SessionRecord, StoreError> {
    Ok(SessionRecord {
        id: SessionId(get(row, "session_id")?),
        call_sid: CallSid(get(row, "call_sid")?),
        stream_sid: StreamSid(get(row, "stream_sid")?),
        caller: CallerId(get(row, "caller")?),
        caller_verified: flag(row, "caller_verified")?,
        agent: AgentId(get(row, "agent")?),
        state: word(row, "state")?,
        epoch: count(row, "epoch")?,
        started_at: at(row, "started_at")?,
        ended_at: maybe_at(row, "ended_at")?,
    })
}

pub(super) fn operation(row: &SqliteRow) -> Result<Operation, StoreError> {
    Ok(Operation {
        id: OperationId(get(row, "operation_id")?),
        session: SessionId(get(row, "session_id")?),
        caller: CallerId(get(row, "caller")?),
        agent: AgentId(get(row, "agent")?),
        tool: ToolName(get(row, "tool")?),
        effect: word(row, "effect")?,
        batch: BatchId(get(row, "batch_id")?),
        turn: match get::<Option<i64>>(row, "turn")? {
            Some(_) => Some(TurnId(count(row, "turn")?)),
            None => None,
        },
        provider_call: ProviderCallId(get(row, "provider_call_id")?),
        key: IntentKey(get(row, "idempotency_key")?),
        fingerprint: get(row, "fingerprint")?,
        arguments: json(row, "args_json")?,
        resource: get(row, "resource")?,
        status: word(row, "status")?,
        reason: get(row, "reason")?,
        version: count(row, "version")?,
        fence: Fence(count(row, "fence")?),
        attempts: count(row, "attempts")?,
        retry: json(row, "retry_json")?,
        may_have_acted: flag(row, "may_have_acted")?,
        next_due_at: maybe_at(row, "next_due_at")?,
        deadline_at: at(row, "deadline_at")?,
        unknown_since: maybe_at(row, "unknown_since")?,
        look_ups: count(row, "look_ups")?,
        told: maybe_word(row, "told")?,
        delivery: json(row, "delivery_json")?,
        result: match get::<Option<String>>(row, "result_json")? {
            Some(_) => Some(json(row, "result_json")?),
            None => None,
        },
        provider_ref: get(row, "provider_ref")?,
        tool_requested_at: at(row, "tool_requested_at")?,
        action_admitted_at: at(row, "action_admitted_at")?,
        effect_committed_at: maybe_at(row, "effect_committed_at")?,
        result_observed_at: maybe_at(row, "result_observed_at")?,
    })
}

pub(super) fn attempt(row: &SqliteRow) -> Result<Attempt, StoreError> {
    Ok(Attempt {
        operation: OperationId(get(row, "operation_id")?),
        fence: Fence(count(row, "fence")?),
        kind: word(row, "kind")?,
        number: count(row, "number")?,
        claimed_at: at(row, "claimed_at")?,
        sent_at: maybe_at(row, "sent_at")?,
        finished_at: maybe_at(row, "finished_at")?,
        end: maybe_word(row, "outcome")?,
        provider_ref: get(row, "provider_ref")?,
        detail: get(row, "detail")?,
    })
}

pub(super) fn batch(row: &SqliteRow) -> Result<Batch, StoreError> {
    Ok(Batch {
        id: BatchId(get(row, "batch_id")?),
        session: SessionId(get(row, "session_id")?),
        session_epoch: count(row, "session_epoch")?,
        response: ResponseId(count(row, "response")?),
        state: word(row, "state")?,
        deliveries: count(row, "deliveries")?,
        opened_at: at(row, "opened_at")?,
        drained_at: maybe_at(row, "drained_at")?,
    })
}

/// Without its operations, which are rows of their own.
pub(super) fn delivery(row: &SqliteRow) -> Result<Delivery, StoreError> {
    Ok(Delivery {
        id: DeliveryId(get(row, "delivery_id")?),
        batch: BatchId(get(row, "batch_id")?),
        kind: word(row, "kind")?,
        session: SessionId(get(row, "session_id")?),
        caller: CallerId(get(row, "caller")?),
        caller_verified: flag(row, "caller_verified")?,
        holder: get::<Option<String>>(row, "holder")?.map(SessionId),
        operations: Vec::new(),
        text: get(row, "summary")?,
        all_committed: flag(row, "all_committed")?,
        priority: word(row, "priority")?,
        quiet_ms: match get::<Option<i64>>(row, "quiet_ms")? {
            Some(_) => Some(count(row, "quiet_ms")?),
            None => None,
        },
        stale_after_ms: get::<Option<i64>>(row, "stale_after_ms")?.map(|ms| ms.max(0) as u64),
        state: word(row, "state")?,
        was_uncertain: flag(row, "was_uncertain")?,
        version: count(row, "version")?,
        offers: count(row, "offers")?,
        heard_ms: AudioMs(count(row, "heard_ms")?),
        reason: get(row, "reason")?,
        superseded_by: get::<Option<String>>(row, "superseded_by")?.map(DeliveryId),
        became_ready_at: at(row, "became_ready_at")?,
        offered_at: maybe_at(row, "offered_at")?,
        settled_at: maybe_at(row, "settled_at")?,
    })
}

pub(super) fn audit(row: &SqliteRow) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        seq: get(row, "seq")?,
        at: at(row, "at")?,
        session: get::<Option<String>>(row, "session_id")?.map(SessionId),
        operation: get::<Option<String>>(row, "operation_id")?.map(OperationId),
        delivery: get::<Option<String>>(row, "delivery_id")?.map(DeliveryId),
        kind: word(row, "kind")?,
        from: get(row, "from_status")?,
        to: get(row, "to_status")?,
        detail: get(row, "detail")?,
    })
}

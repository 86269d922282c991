//! The SQL. Gets and puts only; what they mean is `operations::ledger`.

use super::codec::{self, to_json, unavailable};
use operations::attempt::{Attempt, Fence};
use operations::audit::AuditRow;
use operations::rows::{Load, Row, Rows};
use operations::store::StoreError;
use operations::{Batch, Delivery, Operation, SessionRecord, SessionState};
use sqlx::Row as _;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};
use vocab::effect::Priority;
use vocab::{
    BatchId, CallSid, CallerId, DeliveryId, IntentKey, OperationId, ProviderCallId, ResponseId, SessionId, ToolName,
    WallTime,
};

pub(super) struct SqliteRows<'c> {
    pub(super) connection: &'c mut SqliteConnection,
}

type Sql<'q> = Query<'q, Sqlite, SqliteArguments>;

impl SqliteRows<'_> {
    async fn one<T>(
        &mut self,
        sql: Sql<'_>,
        read: fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let row = sql.fetch_optional(&mut *self.connection).await.map_err(unavailable)?;
        row.as_ref().map(read).transpose()
    }

    async fn all<T>(
        &mut self,
        sql: Sql<'_>,
        read: fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = sql.fetch_all(&mut *self.connection).await.map_err(unavailable)?;
        rows.iter().map(read).collect()
    }

    async fn put(&mut self, sql: Sql<'_>) -> Result<(), StoreError> {
        sql.execute(&mut *self.connection).await.map(|_| ()).map_err(unavailable)
    }

    async fn with_members(&mut self, mut deliveries: Vec<Delivery>) -> Result<Vec<Delivery>, StoreError> {
        for delivery in &mut deliveries {
            let sql =
                sqlx::query("SELECT operation_id FROM delivery_operations WHERE delivery_id = $1 ORDER BY position")
                    .bind(delivery.id.as_str());
            delivery.operations = self.all(sql, |row| first_text(row).map(OperationId)).await?;
        }
        Ok(deliveries)
    }
}

fn first_text(row: &SqliteRow) -> Result<String, StoreError> {
    row.try_get(0).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn first_number(row: &SqliteRow) -> Result<Option<i64>, StoreError> {
    row.try_get(0).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn ms(time: Option<WallTime>) -> Option<i64> {
    time.map(|time| time.0)
}

impl Rows for SqliteRows<'_> {
    fn session<'a>(&'a mut self, id: &'a SessionId) -> Row<'a, Option<SessionRecord>> {
        let sql = sqlx::query("SELECT * FROM sessions WHERE session_id = $1").bind(id.as_str());
        Box::pin(self.one(sql, codec::session))
    }
    fn unfinished_session<'a>(&'a mut self, call: &'a CallSid) -> Row<'a, Option<SessionRecord>> {
        let sql = sqlx::query("SELECT * FROM sessions WHERE call_sid = $1 AND state <> 'ended'").bind(call.as_str());
        Box::pin(self.one(sql, codec::session))
    }
    fn sessions_of_call<'a>(&'a mut self, call: &'a CallSid) -> Row<'a, Vec<SessionRecord>> {
        let sql = sqlx::query("SELECT * FROM sessions WHERE call_sid = $1 ORDER BY session_id").bind(call.as_str());
        Box::pin(self.all(sql, codec::session))
    }
    fn sessions_in(&mut self, state: SessionState) -> Row<'_, Vec<SessionRecord>> {
        let sql = sqlx::query("SELECT * FROM sessions WHERE state = $1 ORDER BY session_id").bind(state.as_str());
        Box::pin(self.all(sql, codec::session))
    }
    fn sessions_of_caller<'a>(&'a mut self, caller: &'a CallerId) -> Row<'a, Vec<SessionRecord>> {
        let sql = sqlx::query("SELECT * FROM sessions WHERE caller = $1 ORDER BY session_id").bind(caller.as_str());
        Box::pin(self.all(sql, codec::session))
    }
    fn put_session<'a>(&'a mut self, session: &'a SessionRecord) -> Row<'a, ()> {
        let sql = sqlx::query(
            "INSERT INTO sessions (session_id, call_sid, stream_sid, caller, caller_verified, agent, state, epoch,
                 started_at, ended_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (session_id) DO UPDATE SET stream_sid = excluded.stream_sid, agent = excluded.agent,
                 state = excluded.state, epoch = excluded.epoch, ended_at = excluded.ended_at",
        )
        .bind(session.id.as_str())
        .bind(session.call_sid.as_str())
        .bind(session.stream_sid.as_str())
        .bind(session.caller.as_str())
        .bind(session.caller_verified)
        .bind(session.agent.as_str())
        .bind(session.state.as_str())
        .bind(session.epoch)
        .bind(session.started_at.0)
        .bind(ms(session.ended_at));
        Box::pin(self.put(sql))
    }

    fn operation<'a>(&'a mut self, id: &'a OperationId) -> Row<'a, Option<Operation>> {
        let sql = sqlx::query("SELECT * FROM operations WHERE operation_id = $1").bind(id.as_str());
        Box::pin(self.one(sql, codec::operation))
    }
    fn operation_by_key<'a>(&'a mut self, key: &'a IntentKey) -> Row<'a, Option<Operation>> {
        let sql = sqlx::query("SELECT * FROM operations WHERE idempotency_key = $1").bind(key.as_str());
        Box::pin(self.one(sql, codec::operation))
    }
    fn operations_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Operation>> {
        let sql =
            sqlx::query("SELECT * FROM operations WHERE session_id = $1 ORDER BY operation_id").bind(session.as_str());
        Box::pin(self.all(sql, codec::operation))
    }
    fn operations_of_batch<'a>(&'a mut self, batch: &'a BatchId) -> Row<'a, Vec<Operation>> {
        let sql =
            sqlx::query("SELECT * FROM operations WHERE batch_id = $1 ORDER BY operation_id").bind(batch.as_str());
        Box::pin(self.all(sql, codec::operation))
    }
    fn due_operations<'a>(&'a mut self, tool: &'a ToolName, now: WallTime, limit: u32) -> Row<'a, Vec<Operation>> {
        // The inner condition is that of the index operations_resource.
        let sql = sqlx::query(
            "SELECT * FROM operations o
             WHERE tool = $1 AND status IN ('admitted', 'failed_retryable') AND next_due_at <= $2
               AND (resource IS NULL OR NOT EXISTS (
                   SELECT 1 FROM operations h
                   WHERE h.resource = o.resource AND h.resource IS NOT NULL AND h.operation_id <> o.operation_id
                     AND (h.status IN ('running', 'unknown')
                          OR (h.status = 'failed_retryable' AND h.may_have_acted = 1))))
             ORDER BY next_due_at, operation_id LIMIT $3",
        )
        .bind(tool.as_str())
        .bind(now.0)
        .bind(limit);
        Box::pin(self.all(sql, codec::operation))
    }
    fn due_look_ups(&mut self, now: WallTime, limit: u32) -> Row<'_, Vec<Operation>> {
        let sql = sqlx::query(
            "SELECT * FROM operations WHERE status = 'unknown' AND next_due_at <= $1
             ORDER BY next_due_at, operation_id LIMIT $2",
        )
        .bind(now.0)
        .bind(limit);
        Box::pin(self.all(sql, codec::operation))
    }
    fn overdue_operation(&mut self, now: WallTime) -> Row<'_, Option<Operation>> {
        let sql = sqlx::query(
            "SELECT * FROM operations WHERE status IN ('admitted', 'failed_retryable') AND deadline_at <= $1
             ORDER BY deadline_at, operation_id LIMIT 1",
        )
        .bind(now.0);
        Box::pin(self.one(sql, codec::operation))
    }
    fn unsettled_operations(&mut self) -> Row<'_, Vec<OperationId>> {
        let sql = sqlx::query(
            "SELECT operation_id FROM operations WHERE status IN ('running', 'unknown') ORDER BY operation_id",
        );
        Box::pin(self.all(sql, |row| first_text(row).map(OperationId)))
    }
    fn next_due(&mut self, now: WallTime) -> Row<'_, Option<WallTime>> {
        let sql = sqlx::query(
            "SELECT MIN(at) FROM (
                 SELECT MIN(next_due_at) AS at FROM operations
                 WHERE status IN ('admitted', 'failed_retryable') AND next_due_at > $1
                 UNION ALL
                 SELECT MIN(deadline_at) FROM operations
                 WHERE status IN ('admitted', 'failed_retryable') AND deadline_at > $1
                 UNION ALL
                 SELECT MIN(next_due_at) FROM operations WHERE status = 'unknown' AND next_due_at > $1)",
        )
        .bind(now.0);
        Box::pin(async move { Ok(self.one(sql, first_number).await?.flatten().map(WallTime)) })
    }
    fn load<'a>(&'a mut self, tool: Option<&'a ToolName>) -> Row<'a, Load> {
        fn counted(row: &SqliteRow) -> Result<(String, u32), StoreError> {
            let corrupt = |error: sqlx::Error| StoreError::Corrupt(error.to_string());
            Ok((row.try_get(0).map_err(corrupt)?, row.try_get(1).map_err(corrupt)?))
        }
        // The statuses are named so that the partial indices serve the question, however many rows are settled.
        let sql = sqlx::query(
            "SELECT status, COUNT(*) FROM operations
             WHERE status IN ('admitted', 'failed_retryable') AND ($1 IS NULL OR tool = $1) GROUP BY status
             UNION ALL
             SELECT status, COUNT(*) FROM operations
             WHERE status IN ('running', 'unknown') AND ($1 IS NULL OR tool = $1) GROUP BY status",
        )
        .bind(tool.map(ToolName::as_str));
        Box::pin(async move {
            let mut load = Load::default();
            for (status, count) in self.all(sql, counted).await? {
                match status.as_str() {
                    "running" => load.running += count,
                    "unknown" => load.unknown += count,
                    // The query asks for no other than the two waiting ones.
                    _ => load.waiting += count,
                }
            }
            Ok(load)
        })
    }
    fn put_operation<'a>(&'a mut self, operation: &'a Operation) -> Row<'a, ()> {
        Box::pin(async move {
            let arguments = to_json(&operation.arguments)?;
            let retry = to_json(&operation.retry)?;
            let delivery = to_json(&operation.delivery)?;
            let result = operation.result.as_ref().map(to_json).transpose()?;
            // What was settled at admission is written once; a conflicting idempotency key fails the transaction.
            let sql = sqlx::query(
                "INSERT INTO operations (operation_id, session_id, caller, agent, tool, effect, batch_id, turn,
                     provider_call_id, idempotency_key, fingerprint, args_json, resource, status, reason, version,
                     fence, attempts, retry_json, may_have_acted, next_due_at, deadline_at, unknown_since, look_ups,
                     told, delivery_json, result_json, provider_ref, tool_requested_at, action_admitted_at,
                     effect_committed_at, result_observed_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                     $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)
                 ON CONFLICT (operation_id) DO UPDATE SET status = excluded.status, reason = excluded.reason,
                     version = excluded.version, fence = excluded.fence, attempts = excluded.attempts,
                     may_have_acted = excluded.may_have_acted, next_due_at = excluded.next_due_at,
                     unknown_since = excluded.unknown_since, look_ups = excluded.look_ups, told = excluded.told,
                     result_json = excluded.result_json, provider_ref = excluded.provider_ref,
                     effect_committed_at = excluded.effect_committed_at,
                     result_observed_at = excluded.result_observed_at
                 WHERE operations.idempotency_key = excluded.idempotency_key",
            )
            .bind(operation.id.as_str())
            .bind(operation.session.as_str())
            .bind(operation.caller.as_str())
            .bind(operation.agent.as_str())
            .bind(operation.tool.as_str())
            .bind(effect_word(operation))
            .bind(operation.batch.as_str())
            .bind(operation.turn.map(|turn| turn.0))
            .bind(operation.provider_call.as_str())
            .bind(operation.key.as_str())
            .bind(operation.fingerprint.as_str())
            .bind(arguments)
            .bind(operation.resource.as_deref())
            .bind(operation.status.as_str())
            .bind(operation.reason.as_deref())
            .bind(operation.version)
            .bind(operation.fence.0)
            .bind(operation.attempts)
            .bind(retry)
            .bind(operation.may_have_acted)
            .bind(ms(operation.next_due_at))
            .bind(operation.deadline_at.0)
            .bind(ms(operation.unknown_since))
            .bind(operation.look_ups)
            .bind(operation.told.map(|told| told.as_str()))
            .bind(delivery)
            .bind(result)
            .bind(operation.provider_ref.as_deref())
            .bind(operation.tool_requested_at.0)
            .bind(operation.action_admitted_at.0)
            .bind(ms(operation.effect_committed_at))
            .bind(ms(operation.result_observed_at));
            let done = sql.execute(&mut *self.connection).await.map_err(unavailable)?;
            if done.rows_affected() == 1 {
                Ok(())
            } else {
                Err(StoreError::Corrupt(format!("{} is the id of another intent", operation.id)))
            }
        })
    }

    fn attempt<'a>(&'a mut self, operation: &'a OperationId, fence: Fence) -> Row<'a, Option<Attempt>> {
        let sql = sqlx::query("SELECT * FROM operation_attempts WHERE operation_id = $1 AND fence = $2")
            .bind(operation.as_str())
            .bind(fence.0);
        Box::pin(self.one(sql, codec::attempt))
    }
    fn attempts<'a>(&'a mut self, operation: &'a OperationId) -> Row<'a, Vec<Attempt>> {
        let sql = sqlx::query("SELECT * FROM operation_attempts WHERE operation_id = $1 ORDER BY fence")
            .bind(operation.as_str());
        Box::pin(self.all(sql, codec::attempt))
    }
    fn put_attempt<'a>(&'a mut self, attempt: &'a Attempt) -> Row<'a, ()> {
        let sql = sqlx::query(
            "INSERT INTO operation_attempts (operation_id, fence, kind, number, claimed_at, sent_at, finished_at,
                 outcome, provider_ref, detail)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (operation_id, fence) DO UPDATE SET sent_at = excluded.sent_at,
                 finished_at = excluded.finished_at, outcome = excluded.outcome,
                 provider_ref = excluded.provider_ref, detail = excluded.detail",
        )
        .bind(attempt.operation.as_str())
        .bind(attempt.fence.0)
        .bind(attempt.kind.as_str())
        .bind(attempt.number)
        .bind(attempt.claimed_at.0)
        .bind(ms(attempt.sent_at))
        .bind(ms(attempt.finished_at))
        .bind(attempt.end.map(|end| end.as_str()))
        .bind(attempt.provider_ref.as_deref())
        .bind(attempt.detail.as_deref());
        Box::pin(self.put(sql))
    }

    fn put_provider_call<'a>(
        &'a mut self,
        session: &'a SessionId,
        call: &'a ProviderCallId,
        operation: &'a OperationId,
    ) -> Row<'a, ()> {
        let sql = sqlx::query(
            "INSERT INTO provider_calls (session_id, provider_call_id, operation_id) VALUES ($1, $2, $3)
             ON CONFLICT (session_id, provider_call_id) DO NOTHING",
        )
        .bind(session.as_str())
        .bind(call.as_str())
        .bind(operation.as_str());
        Box::pin(self.put(sql))
    }
    fn provider_calls<'a>(&'a mut self, operation: &'a OperationId) -> Row<'a, Vec<ProviderCallId>> {
        let sql = sqlx::query(
            "SELECT provider_call_id FROM provider_calls WHERE operation_id = $1 ORDER BY provider_call_id",
        )
        .bind(operation.as_str());
        Box::pin(self.all(sql, |row| first_text(row).map(ProviderCallId)))
    }

    fn batch<'a>(&'a mut self, id: &'a BatchId) -> Row<'a, Option<Batch>> {
        let sql = sqlx::query("SELECT * FROM batches WHERE batch_id = $1").bind(id.as_str());
        Box::pin(self.one(sql, codec::batch))
    }
    fn batch_of_response<'a>(
        &'a mut self,
        session: &'a SessionId,
        epoch: u32,
        response: ResponseId,
    ) -> Row<'a, Option<Batch>> {
        let sql = sqlx::query("SELECT * FROM batches WHERE session_id = $1 AND session_epoch = $2 AND response = $3")
            .bind(session.as_str())
            .bind(epoch)
            .bind(response.0);
        Box::pin(self.one(sql, codec::batch))
    }
    fn open_batches<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Batch>> {
        let sql = sqlx::query("SELECT * FROM batches WHERE session_id = $1 AND state = 'open' ORDER BY batch_id")
            .bind(session.as_str());
        Box::pin(self.all(sql, codec::batch))
    }
    fn put_batch<'a>(&'a mut self, batch: &'a Batch) -> Row<'a, ()> {
        let sql = sqlx::query(
            "INSERT INTO batches (batch_id, session_id, session_epoch, response, state, deliveries, opened_at,
                 drained_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (batch_id) DO UPDATE SET state = excluded.state, deliveries = excluded.deliveries,
                 drained_at = excluded.drained_at",
        )
        .bind(batch.id.as_str())
        .bind(batch.session.as_str())
        .bind(batch.session_epoch)
        .bind(batch.response.0)
        .bind(batch.state.as_str())
        .bind(batch.deliveries)
        .bind(batch.opened_at.0)
        .bind(ms(batch.drained_at));
        Box::pin(self.put(sql))
    }

    fn delivery<'a>(&'a mut self, id: &'a DeliveryId) -> Row<'a, Option<Delivery>> {
        Box::pin(async move {
            let sql = sqlx::query("SELECT * FROM deliveries WHERE delivery_id = $1").bind(id.as_str());
            let found = self.all(sql, codec::delivery).await?;
            Ok(self.with_members(found).await?.pop())
        })
    }
    fn deliveries_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Delivery>> {
        Box::pin(async move {
            let sql =
                sqlx::query("SELECT * FROM deliveries WHERE session_id = $1 ORDER BY became_ready_at, delivery_id")
                    .bind(session.as_str());
            let found = self.all(sql, codec::delivery).await?;
            self.with_members(found).await
        })
    }
    fn open_deliveries_of_caller<'a>(&'a mut self, caller: &'a CallerId) -> Row<'a, Vec<Delivery>> {
        Box::pin(async move {
            let sql = sqlx::query(
                "SELECT * FROM deliveries WHERE caller = $1 AND state IN ('ready', 'offered', 'uncertain')
                 ORDER BY became_ready_at, delivery_id",
            )
            .bind(caller.as_str());
            let found = self.all(sql, codec::delivery).await?;
            self.with_members(found).await
        })
    }
    fn put_delivery<'a>(&'a mut self, delivery: &'a Delivery) -> Row<'a, ()> {
        Box::pin(async move {
            let priority = match delivery.priority {
                Priority::Normal => "normal",
                Priority::Urgent => "urgent",
            };
            // What it says is written once; only its fate changes.
            let sql = sqlx::query(
                "INSERT INTO deliveries (delivery_id, batch_id, kind, session_id, caller, caller_verified, holder,
                     summary, all_committed, priority, quiet_ms, stale_after_ms, state, was_uncertain, version,
                     offers, heard_ms, reason, superseded_by, became_ready_at, offered_at, settled_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                     $21, $22)
                 ON CONFLICT (delivery_id) DO UPDATE SET holder = excluded.holder, state = excluded.state,
                     was_uncertain = excluded.was_uncertain, version = excluded.version, offers = excluded.offers,
                     heard_ms = excluded.heard_ms, reason = excluded.reason,
                     superseded_by = excluded.superseded_by, offered_at = excluded.offered_at,
                     settled_at = excluded.settled_at",
            )
            .bind(delivery.id.as_str())
            .bind(delivery.batch.as_str())
            .bind(delivery.kind.as_str())
            .bind(delivery.session.as_str())
            .bind(delivery.caller.as_str())
            .bind(delivery.caller_verified)
            .bind(delivery.holder.as_ref().map(SessionId::as_str))
            .bind(delivery.text.as_str())
            .bind(delivery.all_committed)
            .bind(priority)
            .bind(delivery.quiet_ms)
            .bind(delivery.stale_after_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)))
            .bind(delivery.state.as_str())
            .bind(delivery.was_uncertain)
            .bind(delivery.version)
            .bind(delivery.offers)
            .bind(delivery.heard_ms.0)
            .bind(delivery.reason.as_deref())
            .bind(delivery.superseded_by.as_ref().map(DeliveryId::as_str))
            .bind(delivery.became_ready_at.0)
            .bind(ms(delivery.offered_at))
            .bind(ms(delivery.settled_at));
            self.put(sql).await?;
            // The members never change.
            if delivery.version == 1 {
                for (position, operation) in delivery.operations.iter().enumerate() {
                    let sql = sqlx::query(
                        "INSERT INTO delivery_operations (delivery_id, position, operation_id) VALUES ($1, $2, $3)
                         ON CONFLICT (delivery_id, position) DO NOTHING",
                    )
                    .bind(delivery.id.as_str())
                    .bind(position as i64)
                    .bind(operation.as_str());
                    self.put(sql).await?;
                }
            }
            Ok(())
        })
    }

    fn append_audit<'a>(&'a mut self, row: &'a AuditRow) -> Row<'a, ()> {
        let sql = sqlx::query(
            "INSERT INTO audit_events (at, session_id, operation_id, delivery_id, kind, from_status, to_status, detail)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(row.at.0)
        .bind(row.session.as_ref().map(SessionId::as_str))
        .bind(row.operation.as_ref().map(OperationId::as_str))
        .bind(row.delivery.as_ref().map(DeliveryId::as_str))
        .bind(row.kind.as_str())
        .bind(row.from.as_deref())
        .bind(row.to.as_deref())
        .bind(row.detail.as_deref());
        Box::pin(self.put(sql))
    }
    fn audit_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<AuditRow>> {
        let sql = sqlx::query("SELECT * FROM audit_events WHERE session_id = $1 ORDER BY seq").bind(session.as_str());
        Box::pin(self.all(sql, codec::audit))
    }
}

fn effect_word(operation: &Operation) -> &'static str {
    use vocab::effect::EffectClass;
    match operation.effect {
        EffectClass::Read => "read",
        EffectClass::Keyed => "keyed",
        EffectClass::Lookup => "lookup",
        EffectClass::Opaque => "opaque",
    }
}

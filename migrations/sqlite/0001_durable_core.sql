-- Ids are text (prefixed UUIDv7), times Unix milliseconds, JSON text, enums text with a CHECK.

CREATE TABLE sessions (
    session_id      TEXT PRIMARY KEY,
    call_sid        TEXT NOT NULL,
    stream_sid      TEXT NOT NULL,
    caller          TEXT NOT NULL,
    caller_verified INTEGER NOT NULL CHECK (caller_verified IN (0, 1)),
    agent           TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('live', 'lost', 'ended')),
    epoch           INTEGER NOT NULL CHECK (epoch >= 1),
    started_at      INTEGER NOT NULL,
    ended_at        INTEGER
) STRICT;
CREATE UNIQUE INDEX sessions_unfinished_call ON sessions (call_sid) WHERE state <> 'ended';
CREATE INDEX sessions_caller ON sessions (caller, session_id);
CREATE INDEX sessions_state ON sessions (state, session_id) WHERE state <> 'ended';

CREATE TABLE batches (
    batch_id      TEXT PRIMARY KEY,
    session_id    TEXT NOT NULL REFERENCES sessions (session_id),
    session_epoch INTEGER NOT NULL,
    response      INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('open', 'sealed', 'drained')),
    deliveries    INTEGER NOT NULL CHECK (deliveries >= 0),
    opened_at     INTEGER NOT NULL,
    drained_at    INTEGER,
    UNIQUE (session_id, session_epoch, response)
) STRICT;

CREATE TABLE operations (
    operation_id        TEXT PRIMARY KEY,
    session_id          TEXT NOT NULL REFERENCES sessions (session_id),
    caller              TEXT NOT NULL,
    agent               TEXT NOT NULL,
    tool                TEXT NOT NULL,
    effect              TEXT NOT NULL CHECK (effect IN ('read', 'keyed', 'lookup', 'opaque')),
    batch_id            TEXT NOT NULL REFERENCES batches (batch_id),
    turn                INTEGER,
    provider_call_id    TEXT NOT NULL,
    idempotency_key     TEXT NOT NULL UNIQUE,
    fingerprint         TEXT NOT NULL,
    args_json           TEXT NOT NULL,
    resource            TEXT,
    status              TEXT NOT NULL CHECK (status IN ('requested', 'admitted', 'running', 'committed',
                            'failed_retryable', 'failed_final', 'unknown', 'cancelled')),
    reason              TEXT,
    version             INTEGER NOT NULL,
    fence               INTEGER NOT NULL,
    attempts            INTEGER NOT NULL,
    retry_json          TEXT NOT NULL,
    may_have_acted      INTEGER NOT NULL CHECK (may_have_acted IN (0, 1)),
    next_due_at         INTEGER,
    deadline_at         INTEGER NOT NULL,
    unknown_since       INTEGER,
    look_ups            INTEGER NOT NULL,
    told                TEXT,
    delivery_json       TEXT NOT NULL,
    result_json         TEXT,
    provider_ref        TEXT,
    tool_requested_at   INTEGER NOT NULL,
    action_admitted_at  INTEGER NOT NULL,
    effect_committed_at INTEGER,
    result_observed_at  INTEGER
) STRICT;
CREATE INDEX operations_session ON operations (session_id, operation_id);
CREATE INDEX operations_batch ON operations (batch_id, operation_id);
CREATE INDEX operations_due ON operations (tool, next_due_at, operation_id)
    WHERE status IN ('admitted', 'failed_retryable');
CREATE INDEX operations_deadline ON operations (deadline_at, operation_id)
    WHERE status IN ('admitted', 'failed_retryable');
CREATE INDEX operations_unsettled ON operations (status, next_due_at, operation_id)
    WHERE status IN ('running', 'unknown');
-- One mutation at a time a resource: the last defence behind the claim rule.
CREATE UNIQUE INDEX operations_resource ON operations (resource)
    WHERE resource IS NOT NULL
      AND (status IN ('running', 'unknown') OR (status = 'failed_retryable' AND may_have_acted = 1));

CREATE TABLE operation_attempts (
    operation_id TEXT NOT NULL REFERENCES operations (operation_id),
    fence        INTEGER NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('execute', 'reconcile')),
    number       INTEGER NOT NULL,
    claimed_at   INTEGER NOT NULL,
    sent_at      INTEGER,
    finished_at  INTEGER,
    outcome      TEXT CHECK (outcome IN ('ok', 'rejected', 'retryable', 'info', 'unsent')),
    provider_ref TEXT,
    detail       TEXT,
    PRIMARY KEY (operation_id, fence)
) STRICT;

-- Many model call ids to one intent.
CREATE TABLE provider_calls (
    session_id       TEXT NOT NULL REFERENCES sessions (session_id),
    provider_call_id TEXT NOT NULL,
    operation_id     TEXT NOT NULL REFERENCES operations (operation_id),
    PRIMARY KEY (session_id, provider_call_id)
) STRICT;
CREATE INDEX provider_calls_operation ON provider_calls (operation_id, provider_call_id);

CREATE TABLE deliveries (
    delivery_id     TEXT PRIMARY KEY,
    batch_id        TEXT NOT NULL REFERENCES batches (batch_id),
    kind            TEXT NOT NULL CHECK (kind IN ('final', 'correction')),
    session_id      TEXT NOT NULL REFERENCES sessions (session_id),
    caller          TEXT NOT NULL,
    caller_verified INTEGER NOT NULL CHECK (caller_verified IN (0, 1)),
    holder          TEXT REFERENCES sessions (session_id),
    summary         TEXT NOT NULL,
    all_committed   INTEGER NOT NULL CHECK (all_committed IN (0, 1)),
    priority        TEXT NOT NULL CHECK (priority IN ('normal', 'urgent')),
    quiet_ms        INTEGER,
    stale_after_ms  INTEGER,
    state           TEXT NOT NULL CHECK (state IN ('ready', 'offered', 'heard', 'uncertain', 'suppressed',
                        'superseded', 'expired')),
    was_uncertain   INTEGER NOT NULL CHECK (was_uncertain IN (0, 1)),
    version         INTEGER NOT NULL,
    offers          INTEGER NOT NULL,
    heard_ms        INTEGER NOT NULL,
    reason          TEXT,
    superseded_by   TEXT,
    became_ready_at INTEGER NOT NULL,
    offered_at      INTEGER,
    settled_at      INTEGER
) STRICT;
CREATE INDEX deliveries_session ON deliveries (session_id, became_ready_at, delivery_id);
CREATE INDEX deliveries_open ON deliveries (caller, became_ready_at, delivery_id)
    WHERE state IN ('ready', 'offered', 'uncertain');

CREATE TABLE delivery_operations (
    delivery_id  TEXT NOT NULL REFERENCES deliveries (delivery_id),
    position     INTEGER NOT NULL,
    operation_id TEXT NOT NULL REFERENCES operations (operation_id),
    PRIMARY KEY (delivery_id, position)
) STRICT;

CREATE TABLE audit_events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    session_id   TEXT,
    operation_id TEXT,
    delivery_id  TEXT,
    kind         TEXT NOT NULL,
    from_status  TEXT,
    to_status    TEXT,
    detail       TEXT
) STRICT;
CREATE INDEX audit_events_session ON audit_events (session_id, seq);
-- Append-only, whoever connects.
CREATE TRIGGER audit_events_no_update BEFORE UPDATE ON audit_events
BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER audit_events_no_delete BEFORE DELETE ON audit_events
BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;

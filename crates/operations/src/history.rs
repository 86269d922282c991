//! What an auditor, an operator or a test reads: everything the store knows of a session or of a caller.

use crate::attempt::Attempt;
use crate::audit::AuditRow;
use crate::delivery::Delivery;
use crate::operation::Operation;
use crate::rows::Rows;
use crate::session::SessionRecord;
use crate::store::StoreError;
use serde::{Deserialize, Serialize};
use vocab::{CallSid, CallerId, ProviderCallId, SessionId};

/// Whose history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Session(SessionId),
    /// Every session of one carrier leg; more than one if it went on after it had ended.
    Call(CallSid),
    Caller(CallerId),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
pub struct History {
    /// By id, which is by age.
    pub sessions: Vec<SessionHistory>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionHistory {
    pub session: SessionRecord,
    pub operations: Vec<OperationHistory>,
    /// Made by work of this session, wherever they were or will be heard.
    pub deliveries: Vec<Delivery>,
    /// Every recorded change that names this session, oldest first.
    pub audit: Vec<AuditRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationHistory {
    pub operation: Operation,
    pub attempts: Vec<Attempt>,
    /// Every model call that was answered from this operation.
    pub provider_calls: Vec<ProviderCallId>,
}

impl History {
    pub fn operations(&self) -> impl Iterator<Item = &OperationHistory> {
        self.sessions.iter().flat_map(|session| &session.operations)
    }
    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.sessions.iter().flat_map(|session| &session.deliveries)
    }
}

/// Reads it all in one transaction. An unknown session or caller has an empty history.
pub async fn history(rows: &mut dyn Rows, scope: &Scope) -> Result<History, StoreError> {
    let records = match scope {
        Scope::Session(id) => rows.session(id).await?.into_iter().collect(),
        Scope::Call(call) => rows.sessions_of_call(call).await?,
        Scope::Caller(caller) => rows.sessions_of_caller(caller).await?,
    };
    let mut sessions = Vec::with_capacity(records.len());
    for session in records {
        let mut operations = Vec::new();
        for operation in rows.operations_of_session(&session.id).await? {
            let attempts = rows.attempts(&operation.id).await?;
            let provider_calls = rows.provider_calls(&operation.id).await?;
            operations.push(OperationHistory { operation, attempts, provider_calls });
        }
        let deliveries = rows.deliveries_of_session(&session.id).await?;
        let audit = rows.audit_of_session(&session.id).await?;
        sessions.push(SessionHistory { session, operations, deliveries, audit });
    }
    Ok(History { sessions })
}

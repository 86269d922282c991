//! What only a store on disk can get wrong.

use crate::bench::*;
use operations::history::Scope;
use operations::store::*;
use operations::{Store, StoreError};
use serde_json::json;
use std::sync::Arc;
use store::{OpenError, SqliteStore};
use vocab::effect::EffectClass;
use vocab::{AgentId, CallSid, CallerId, SessionId, StreamSid, WallTime};

fn opening(n: u32) -> OpenSession {
    OpenSession {
        fresh: SessionId(format!("ses_{n:04}")),
        call_sid: CallSid(format!("CA{n}")),
        stream_sid: StreamSid(format!("MZ{n}")),
        caller: CallerId::new("+1"),
        caller_verified: true,
        agent: AgentId::new("host"),
        now: WallTime(1),
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_told_so() {
    let dir = TestDir::new();
    let first = SqliteStore::open(&dir.0).await.unwrap();
    assert!(matches!(SqliteStore::open(&dir.0).await, Err(OpenError::InUse(_))));
    first.close().await;
    SqliteStore::open(&dir.0).await.unwrap().close().await;
}

#[tokio::test]
async fn what_was_answered_is_there_after_opening_again() {
    let dir = TestDir::new();
    let store = SqliteStore::open(&dir.0).await.unwrap();
    store.open_session(opening(1)).await.unwrap();
    let before = store.history(Scope::Caller(CallerId::new("+1"))).await.unwrap();
    store.close().await;
    assert_eq!(store.open_session(opening(2)).await, Err(StoreError::Closed));
    let again = SqliteStore::open(&dir.0).await.unwrap();
    assert_eq!(again.history(Scope::Caller(CallerId::new("+1"))).await.unwrap(), before);
    again.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_that_was_deleted_or_replaced_under_the_server_takes_no_promise() {
    let dir = TestDir::new();
    let store = SqliteStore::open(&dir.0).await.unwrap();
    assert_eq!(store.can_write().await, Ok(()));
    let (database, away) = (dir.0.join("answerback.db"), dir.0.join("away.db"));
    let why = async || store.can_write().await.unwrap_err().to_string();
    std::fs::rename(&database, &away).unwrap();
    assert!(why().await.contains("is gone"), "{}", why().await);
    std::fs::copy(&away, &database).unwrap();
    assert!(why().await.contains("another file"), "{}", why().await);
    std::fs::rename(&away, &database).unwrap();
    assert_eq!(store.can_write().await, Ok(()));
    store.close().await;
}

#[tokio::test]
async fn many_writers_at_once_are_all_answered_and_all_kept() {
    let dir = TestDir::new();
    let store = Arc::new(SqliteStore::open(&dir.0).await.unwrap());
    let writers: Vec<_> = (0..200)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.open_session(opening(n)).await.unwrap() })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let history = store.history(Scope::Caller(CallerId::new("+1"))).await.unwrap();
    assert_eq!(history.sessions.len(), 200);
    store.close().await;
}

#[tokio::test]
async fn a_verb_that_fails_in_a_group_takes_no_other_with_it() {
    let dir = TestDir::new();
    let store = SqliteStore::open(&dir.0).await.unwrap();
    let (one, two) = tokio::join!(store.open_session(opening(1)), store.open_session(opening(2)));
    assert!(one.is_ok() && two.is_ok());
    let mut bench = Bench::memory();
    let session = one.unwrap().session;
    let mut broken = bench.admit(&session, 1, EffectClass::Keyed, json!({}));
    let good = bench.admit(&session, 1, EffectClass::Keyed, json!({"n": 2}));
    broken.agent = AgentId::new("x");
    let first = store.admit(broken.clone()).await.unwrap();
    assert!(matches!(first, Admission::Created(_)));
    // A new intent under an operation id that is taken fails after the batch row was written.
    let mut taken = bench.admit(&session, 1, EffectClass::Keyed, json!({"n": 3}));
    taken.operation = broken.operation.clone();
    taken.response = vocab::ResponseId(2);
    let (taken, good) = tokio::join!(store.admit(taken), store.admit(good));
    assert!(good.is_ok(), "{good:?}");
    assert!(taken.is_err(), "{taken:?}");
    let history = store.history(Scope::Session(session.id)).await.unwrap();
    assert_eq!(history.sessions[0].operations.len(), 2);
    store.close().await;
}

#[tokio::test]
async fn a_dropped_caller_leaves_its_write_whole() {
    let dir = TestDir::new();
    let store = SqliteStore::open(&dir.0).await.unwrap();
    for n in 0..50 {
        let write = store.open_session(opening(n));
        tokio::select! {
            biased;
            _ = write => {}
            _ = tokio::task::yield_now() => {}
        }
    }
    store.close().await;
    let again = SqliteStore::open(&dir.0).await.unwrap();
    let history = again.history(Scope::Caller(CallerId::new("+1"))).await.unwrap();
    assert_eq!(history.sessions.len(), 50);
    assert!(history.sessions.iter().all(|s| s.audit.len() == 1));
    again.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_the_database_and_its_logs() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDir::new();
    std::fs::create_dir_all(&dir.0).unwrap();
    // As an earlier version left it.
    std::fs::write(dir.0.join("answerback.db"), "").unwrap();
    std::fs::set_permissions(dir.0.join("answerback.db"), PermissionsExt::from_mode(0o644)).unwrap();
    let store = SqliteStore::open(&dir.0).await.unwrap();
    store.open_session(opening(1)).await.unwrap();
    let mut seen = Vec::new();
    for file in std::fs::read_dir(&dir.0).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
        seen.push(file.file_name().into_string().unwrap());
    }
    seen.sort();
    assert_eq!(seen, ["answerback.db", "answerback.db-shm", "answerback.db-wal", "answerback.lock"]);
    store.close().await;
}

#[tokio::test]
async fn a_probe_of_the_disk_changes_nothing_that_is_stored() {
    let dir = TestDir::new();
    let store = SqliteStore::open(&dir.0).await.unwrap();
    store.open_session(opening(1)).await.unwrap();
    let before = store.history(Scope::Caller(CallerId::new("+1"))).await.unwrap();
    assert_eq!(store.can_write().await, Ok(()));
    assert_eq!(store.history(Scope::Caller(CallerId::new("+1"))).await.unwrap(), before);
    store.close().await;
    assert_eq!(store.can_write().await, Err(StoreError::Closed));
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named_with_the_way_out() {
    let dir = TestDir::new();
    std::fs::create_dir_all(&dir.0).unwrap();
    let file = dir.0.join("answerback.db");
    std::fs::write(&file, "a letter, not a database; ".repeat(400)).unwrap();
    let Err(error) = SqliteStore::open(&dir.0).await else { panic!("it was opened") };
    let told = error.to_string();
    assert!(told.starts_with(&file.display().to_string()) && told.contains("put a backup in its place"), "{told}");
    assert!(matches!(error, OpenError::NoDatabase(_)), "{error:?}");
}

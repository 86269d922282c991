//! The only task that writes. It takes what waits, runs each verb inside its own savepoint and commits once for all of
//! them: one `fdatasync` serves the whole group. (durability.md 4: 6-25 times the throughput on a slow disk.)
//!
//! A caller that drops its future changes nothing: the verb is in the queue and is carried out.

use super::codec::unavailable;
use super::rows::SqliteRows;
use crate::verb::Verb;
use operations::rows::Row;
use operations::store::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use std::fs::File;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, warn};

/// Writes that may wait. A full queue makes its callers wait, up to [`QUEUE_WAIT`], and then answers `Overloaded`:
/// admission turns that into a refusal, everything else tries again.
const QUEUE: usize = 1_024;
const QUEUE_WAIT: Duration = Duration::from_secs(2);
/// Verbs in one commit. Bounds how long the first of them waits for the last.
const GROUP: usize = 128;

/// A verb with the way back to its caller.
trait Job: Send {
    fn run<'a>(&'a mut self, connection: &'a mut SqliteConnection) -> Row<'a, ()>;
    /// After the commit, or instead of it.
    fn answer(self: Box<Self>, end: Result<(), StoreError>);
}

struct Asked<V: Verb> {
    verb: V,
    reply: Option<V::Reply>,
    caller: oneshot::Sender<Result<V::Reply, StoreError>>,
}

impl<V: Verb> Job for Asked<V> {
    fn run<'a>(&'a mut self, connection: &'a mut SqliteConnection) -> Row<'a, ()> {
        Box::pin(async move {
            self.reply = Some(self.verb.run(&mut SqliteRows { connection }).await?);
            Ok(())
        })
    }

    fn answer(self: Box<Self>, end: Result<(), StoreError>) {
        let answer = match (end, self.reply) {
            (Ok(()), Some(reply)) => Ok(reply),
            (Ok(()), None) => Err(StoreError::Unavailable("the verb was not run".into())),
            (Err(error), _) => Err(error),
        };
        // A caller that is gone has nobody to tell; the write stands.
        let _ = self.caller.send(answer);
    }
}

/// Changes nothing that anybody reads, but dirties a page: its commit needs the disk as much as any other.
struct Probe {
    caller: oneshot::Sender<Result<(), StoreError>>,
}

impl Job for Probe {
    fn run<'a>(&'a mut self, connection: &'a mut SqliteConnection) -> Row<'a, ()> {
        // SQLite keeps this number for its users and uses it for nothing; neither do we.
        Box::pin(execute(connection, "PRAGMA user_version = 0"))
    }

    fn answer(self: Box<Self>, end: Result<(), StoreError>) {
        // As above.
        let _ = self.caller.send(end);
    }
}

pub(super) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(connection: SqliteConnection, options: SqliteConnectOptions, lock: File) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let task = tokio::spawn(run(connection, options, jobs, lock));
        Self { queue: Mutex::new(Some(queue)), task: tokio::sync::Mutex::new(Some(task)) }
    }

    pub(super) fn write<V: Verb>(&self, verb: V) -> impl Future<Output = Result<V::Reply, StoreError>> + Send {
        self.ask(|caller| Asked { verb, reply: None, caller })
    }

    /// A commit for its own sake.
    pub(super) fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.ask(|caller| Probe { caller })
    }

    fn ask<J: Job + 'static, R: Send>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<R, StoreError>>) -> J + Send,
    ) -> impl Future<Output = Result<R, StoreError>> + Send {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (caller, answer) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(job(caller));
        async move {
            let queue = queue.ok_or(StoreError::Closed)?;
            match queue.send_timeout(job, QUEUE_WAIT).await {
                Ok(()) => {}
                Err(mpsc::error::SendTimeoutError::Timeout(_)) => return Err(StoreError::Overloaded),
                Err(mpsc::error::SendTimeoutError::Closed(_)) => return Err(StoreError::Closed),
            }
            drop(queue);
            answer.await.unwrap_or(Err(StoreError::Closed))
        }
    }

    pub(super) async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = self.task.lock().await.take()
            && let Err(ended) = task.await
        {
            error!(error = %ended, "the writer of the store ended badly");
        }
    }
}

async fn run(
    mut connection: SqliteConnection,
    options: SqliteConnectOptions,
    mut jobs: mpsc::Receiver<Box<dyn Job>>,
    lock: File,
) {
    let mut group = Vec::with_capacity(GROUP);
    while jobs.recv_many(&mut group, GROUP).await > 0 {
        if commit(&mut connection, std::mem::take(&mut group)).await.is_err() {
            // After a failed rollback nobody knows what the connection holds. A new one starts from what is durable.
            match options.connect().await {
                Ok(fresh) => connection = fresh,
                Err(error) => error!(%error, "the database cannot be opened again"),
            }
        }
    }
    if let Err(error) = connection.close().await {
        warn!(%error, "the database did not close cleanly");
    }
    // Only now may another process come.
    drop(lock);
}

/// The connection can no longer be trusted.
struct Untrusted;

async fn commit(connection: &mut SqliteConnection, jobs: Vec<Box<dyn Job>>) -> Result<(), Untrusted> {
    if let Err(error) = execute(connection, "BEGIN IMMEDIATE").await {
        for job in jobs {
            job.answer(Err(error.clone()));
        }
        return Err(Untrusted);
    }
    let mut done = Vec::with_capacity(jobs.len());
    for mut job in jobs {
        match run_one(connection, job.as_mut()).await {
            Ok(()) => done.push(job),
            Err(Fault::Verb(error)) => job.answer(Err(error)),
            Err(Fault::Savepoint(error)) => {
                // The savepoint could not be undone, so nothing of this group may be committed.
                job.answer(Err(error.clone()));
                return roll_back(connection, done, error).await;
            }
        }
    }
    match execute(connection, "COMMIT").await {
        Ok(()) => {
            for job in done {
                job.answer(Ok(()));
            }
            Ok(())
        }
        Err(error) => roll_back(connection, done, error).await,
    }
}

async fn roll_back(
    connection: &mut SqliteConnection,
    jobs: Vec<Box<dyn Job>>,
    why: StoreError,
) -> Result<(), Untrusted> {
    error!(error = %why, "a group of writes was rolled back");
    let undone = execute(connection, "ROLLBACK").await;
    for job in jobs {
        job.answer(Err(why.clone()));
    }
    undone.map_err(|_| Untrusted)
}

enum Fault {
    /// The verb failed and has been undone.
    Verb(StoreError),
    Savepoint(StoreError),
}

async fn run_one(connection: &mut SqliteConnection, job: &mut dyn Job) -> Result<(), Fault> {
    execute(connection, "SAVEPOINT verb").await.map_err(Fault::Savepoint)?;
    match job.run(connection).await {
        Ok(()) => execute(connection, "RELEASE verb").await.map_err(Fault::Savepoint),
        Err(error) => {
            execute(connection, "ROLLBACK TO verb").await.map_err(Fault::Savepoint)?;
            execute(connection, "RELEASE verb").await.map_err(Fault::Savepoint)?;
            Err(Fault::Verb(error))
        }
    }
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), StoreError> {
    sqlx::query(sql).execute(connection).await.map(|_| ()).map_err(unavailable)
}

//! One file on one node. Writes go through one writer task that commits in groups; reads have their own connections.
//!
//! `synchronous=FULL`: a commit that was answered survives a power cut, since a forgotten *sent* mark would be a second
//! effect. The exclusive lock on the directory keeps a second server away (SQLite's own migration lock does nothing).

mod codec;
mod rows;
mod writer;

use crate::verb::{Verb, store_by_verbs};
use operations::store::*;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqlSafeStr};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Waits this long for a lock of another connection before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers never block the writer in WAL mode; two are enough for doors and late mailboxes.
const READERS: u32 = 2;
/// The log file is cut back to this after a checkpoint, in bytes.
const JOURNAL_SIZE_LIMIT: &str = "67108864";

/// The store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("another server uses {0}: one data directory serves one process")]
    InUse(PathBuf),
    #[error("the data directory {path} cannot be used: {source}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("{0} is damaged or no database: put a backup in its place, or move it away to begin with an empty one")]
    NoDatabase(PathBuf),
    #[error("the database {path} cannot be opened: {source}")]
    Database { path: PathBuf, source: sqlx::Error },
    #[error("the database {path} cannot be brought to this version: {source}")]
    Migration { path: PathBuf, source: sqlx::migrate::MigrateError },
}

pub struct SqliteStore {
    writer: writer::Writer,
    readers: SqlitePool,
    database: PathBuf,
    /// Of the file that was opened.
    identity: Identity,
}

/// What tells a file from another one that has come under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        #[cfg(unix)]
        let (device, inode) = {
            use std::os::unix::fs::MetadataExt;
            (found.dev(), found.ino())
        };
        // An open file cannot be deleted elsewhere: that it is there says enough.
        #[cfg(not(unix))]
        let (device, inode) = (u64::from(found.is_file()), 0);
        Ok(Self { device, inode })
    }
}

impl SqliteStore {
    /// Opens or creates `answerback.db` in `directory`, and brings it to this version. Must be called inside a tokio
    /// runtime; the writer task lives until [`SqliteStore::close`] or until the store is dropped.
    pub async fn open(directory: &Path) -> Result<Self, OpenError> {
        let lock = lock(directory)?;
        let database = directory.join("answerback.db");
        private_file(&database).map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
        let options = SqliteConnectOptions::new()
            .filename(&database)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("journal_size_limit", JOURNAL_SIZE_LIMIT);
        let unopened = |source| open_error(&database, source);
        let mut connection = options.connect().await.map_err(unopened)?;
        // A migration that fails half-way rolls back; the lock above keeps a second one away.
        if let Err(error) = migrations().run(&mut connection).await {
            // The error that matters is the migration's.
            let _ = connection.close().await;
            return Err(match error {
                MigrateError::Execute(source) if is_damaged(&source) => OpenError::NoDatabase(database),
                source => OpenError::Migration { path: database, source },
            });
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.clone().read_only(true).create_if_missing(false))
            .await
            .map_err(unopened)?;
        let identity =
            Identity::of(&database).map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
        Ok(Self { writer: writer::Writer::start(connection, options, lock), readers, database, identity })
    }

    /// Waits for every write that was taken, closes the file and gives the directory free. Later verbs answer
    /// `StoreError::Closed`.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Commits something without content: fails where an admission would fail now, be it that the disk is full, read-only or
    /// away. Waits behind the writes that were there before.
    ///
    /// A file that was deleted while it was open takes every write and keeps none beyond the process: it counts as away.
    pub async fn can_write(&self) -> Result<(), StoreError> {
        self.writer.probe().await?;
        let database = self.database.clone();
        let now = tokio::task::spawn_blocking(move || Identity::of(&database)).await;
        // Strangers may read readiness: no path.
        let lost = |why: String| StoreError::Unavailable(format!("the database file {why}"));
        match now {
            Ok(Ok(identity)) if identity == self.identity => Ok(()),
            Ok(Ok(_)) => Err(lost("is another file than the one that was opened: restart the server".to_owned())),
            Ok(Err(error)) => Err(lost(format!("is gone: {error}"))),
            Err(error) => Err(lost(format!("cannot be looked at: {error}"))),
        }
    }

    fn write<V: Verb>(&self, verb: V) -> StoreFuture<'_, V::Reply> {
        Box::pin(self.writer.write(verb))
    }

    fn read<V: Verb>(&self, verb: V) -> StoreFuture<'_, V::Reply> {
        Box::pin(async move {
            // One transaction, so that all that is read belongs together.
            let mut transaction = self.readers.begin().await.map_err(codec::unavailable)?;
            verb.run(&mut rows::SqliteRows { connection: &mut transaction }).await
        })
    }
}

store_by_verbs!(SqliteStore);

fn lock(directory: &Path) -> Result<File, OpenError> {
    let unusable = |source| OpenError::Directory { path: directory.to_owned(), source };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    // Numbers and arguments of callers are in there.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory).map_err(unusable)?;
    let file = private_file(&directory.join("answerback.lock")).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

fn open_error(path: &Path, source: sqlx::Error) -> OpenError {
    let path = path.to_owned();
    if is_damaged(&source) { OpenError::NoDatabase(path) } else { OpenError::Database { path, source } }
}

/// SQLITE_CORRUPT and SQLITE_NOTADB.
fn is_damaged(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| matches!(&*code, "11" | "26"))
}

/// A file that only we may read. One that is there keeps its content and loses the others' rights: SQLite gives its log files
/// those of the database.
fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

fn migrations() -> Migrator {
    Migrator::with_migrations(vec![Migration::new(
        1,
        "durable core".into(),
        MigrationType::Simple,
        include_str!("../../../../migrations/sqlite/0001_durable_core.sql").into_sql_str(),
        false,
    )])
}

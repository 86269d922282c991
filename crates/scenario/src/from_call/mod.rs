//! Scenarios out of recorded calls: what happened to a call becomes a file that plays it again, with what came of it as its
//! expectations. What a recording does not tell is said in the file, in a comment.
//!
//! A call whose stream broke has one recording a stream, and a caller who called again to hear the outcome has one a call:
//! they belong together and become one scenario.

mod expect;
mod facts;
mod pass;
mod script;
mod sounds;
mod streams;
mod when;
mod write;

pub use streams::Stream;

use replay::{ReplayError, find_recordings};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum FromCallError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("{}: {source}", place.display())]
    Io { place: PathBuf, source: std::io::Error },
    #[error("there is no recording in {}: one is a folder with call.jsonl in it", place.display())]
    Nothing { place: PathBuf },
    #[error("{} is there already: remove it, or write elsewhere with --to", place.display())]
    InTheWay { place: PathBuf },
    #[error(
        "{}: it begins with news of an earlier call, whose recording is not beside it: put both into one folder and give \
         that folder",
        place.display()
    )]
    EarlierCallMissing { place: PathBuf },
    #[error(
        "{}: its model speaks by itself (GPT-Live), so what made it speak is not in the recording and no scenario can be \
         written; `answerback replay` plays the recording itself",
        place.display()
    )]
    SpeaksByItself { place: PathBuf },
}

/// Where scenarios are written and what they start from.
pub struct Target<'a> {
    pub folder: &'a Path,
    /// The config folder that the server ran with; the shipped one when absent.
    pub config: Option<&'a Path>,
}

/// Writes one scenario for each call at or below `place` into the folder, which is made, and returns their files. For a
/// single recording, the others of the same call are looked for beside it.
pub fn from_call(place: &Path, target: &Target<'_>) -> Result<Vec<PathBuf>, FromCallError> {
    let mut found = find_recordings(place)?;
    let Some(first) = found.first() else { return Err(FromCallError::Nothing { place: place.to_owned() }) };
    let mut only = None;
    if first == place {
        only = Some(first.clone());
        if let Some(beside) = std::fs::canonicalize(place).ok().as_deref().and_then(Path::parent) {
            found = find_recordings(beside)?;
            only = Some(beside.join(place.file_name().unwrap_or_default()));
        }
    }
    let streams = found.iter().map(|place| Stream::read(place)).collect::<Result<Vec<_>, _>>();
    // Beside the one that is meant there may be anything.
    let streams = match (streams, only.as_deref()) {
        (Ok(streams), _) => streams,
        (Err(_), Some(_)) => vec![Stream::read(place)?],
        (Err(error), None) => return Err(error.into()),
    };
    let stories = streams::stories(streams)
        .into_iter()
        .filter(|story| only.as_ref().is_none_or(|only| story.iter().any(|stream| same(&stream.place, only))));
    let stories: Vec<_> = stories.collect();
    if let Some(stream) = stories.iter().flatten().find(|stream| stream.model_speaks_by_itself()) {
        return Err(FromCallError::SpeaksByItself { place: stream.place.clone() });
    }
    let io = |source| FromCallError::Io { place: target.folder.to_owned(), source };
    std::fs::create_dir_all(target.folder).map_err(io)?;
    stories.into_iter().map(|story| write::scenario(&story, target)).collect()
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

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
    #[error("{}: it holds no step, so there is nothing to play: the process was ended as the call began", place.display())]
    NoStep { place: PathBuf },
}

/// What came of a folder of recordings.
#[derive(Debug, Default)]
pub struct FromCalls {
    /// The files, one a call.
    pub written: Vec<PathBuf>,
    /// Recordings of which no file was made, and why.
    pub skipped: Vec<(PathBuf, FromCallError)>,
}

/// Where scenarios are written and what they start from.
pub struct Target<'a> {
    pub folder: &'a Path,
    /// The config folder that the server ran with; the shipped one when absent.
    pub config: Option<&'a Path>,
}

/// Writes one scenario for each call at or below `place` into the folder, which is made. For a single recording, the others
/// of the same call are looked for beside it, and an error is one of this call. In a folder, a recording that cannot be used
/// is skipped and named.
pub fn from_call(place: &Path, target: &Target<'_>) -> Result<FromCalls, FromCallError> {
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
    let is_meant = |place: &Path| only.as_ref().is_none_or(|only| same(place, only));
    let mut made = FromCalls::default();
    let mut streams = Vec::new();
    for place in found {
        match Stream::read(&place) {
            Ok(stream) => streams.push(stream),
            Err(error) if only.is_none() => made.skipped.push((place, error.into())),
            Err(error) if is_meant(&place) => return Err(error.into()),
            // Beside the one that is meant there may be anything.
            Err(_) => {}
        }
    }
    let stories = streams::stories(streams);
    let stories = stories.iter().filter(|story| story.iter().any(|stream| is_meant(&stream.place)));
    std::fs::create_dir_all(target.folder)
        .map_err(|source| FromCallError::Io { place: target.folder.to_owned(), source })?;
    for story in stories {
        let speaks = story.iter().find(|stream| stream.model_speaks_by_itself());
        let scenario = match speaks {
            Some(stream) => Err(FromCallError::SpeaksByItself { place: stream.place.clone() }),
            None => write::scenario(story, target),
        };
        match scenario {
            Ok(file) => made.written.push(file),
            // What cannot be written is no matter of one recording.
            Err(error @ FromCallError::Io { .. }) => return Err(error),
            Err(error) if only.is_some() => return Err(error),
            Err(error) => made.skipped.push((story.first().map_or_else(PathBuf::new, |s| s.place.clone()), error)),
        }
    }
    Ok(made)
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

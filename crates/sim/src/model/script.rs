//! What the simulated model says and calls: rules, tried in order on each response.

use crate::audio_file::AudioFileError;
use crate::{g711, resample, voices};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A script file, TOML:
///
/// ```toml
/// transcripts = ["Hello, I'd like to book a table for two at nine tonight, please."]
///
/// [[rules]]
/// after = "nothing"
/// say = { file = "builtin:agent_greeting", text = "Good evening. How can I help you?" }
///
/// [[rules]]
/// after = "user"
/// context_contains = "book a table"
/// once = true
/// say = { file = "builtin:agent_acknowledge", text = "One moment please.", phase = "commentary" }
/// call = { name = "book_table", arguments = { party = 2, time = "21:00" } }
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelScript {
    /// What the caller's turns turn out to have said, in order of their commits. Beyond the last: an empty transcript.
    pub transcripts: Vec<String>,
    pub rules: Vec<Rule>,
    /// What a Live model says without any occasion, when a fault lets it: see `ModelFaults::unprompted`.
    pub unprompted: Vec<Say>,
    /// Whose progress `once` and `transcripts` count: the whole server's (a call that comes back after a crash goes on in
    /// the script) or each session's (many calls at a time run the same script).
    pub progress: Progress,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    #[default]
    Server,
    Session,
}

/// All conditions given must hold; the first rule that matches answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    pub after: After,
    /// Matches only the n-th time (from 1) that the other conditions hold in this session.
    pub nth: Option<u32>,
    /// Must occur in the instructions of this response (or in the session's, when the response has none). Any case.
    pub instructions_contain: Option<String>,
    /// Must occur in the text of one of the newest six items: messages, transcripts, tool outputs. Any case.
    pub context_contains: Option<String>,
    /// Matches once, then never again.
    pub once: bool,

    /// Think this long between `response.created` and the first item.
    pub delay_ms: u64,
    pub say: Option<Say>,
    /// Follows `say` in the same response.
    pub call: Option<Call>,
    /// More calls in the same response, as reasoning models make them.
    pub more_calls: Vec<Call>,
    /// End the response as `failed` with this error code; whatever was said before has been said.
    pub fail: Option<String>,
    /// Complete the response with nothing in it.
    pub empty: bool,
}

/// What came last since the last response began: user speech or text, a tool output, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    User,
    ToolOutput,
    /// Neither since the last response: the opening, or a response asked for on other grounds.
    Nothing,
    #[default]
    Any,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Say {
    /// `builtin:NAME`, or a path that starts at the script's folder.
    pub file: String,
    /// The transcript.
    pub text: String,
    /// `commentary` or `final_answer`; left out of the item when absent.
    pub phase: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub name: String,
    /// A table, written as JSON; or a string, sent as it is (for broken JSON).
    #[serde(default = "no_arguments")]
    pub arguments: toml::Value,
}

fn no_arguments() -> toml::Value {
    toml::Value::Table(toml::Table::new())
}

impl Call {
    pub(super) fn arguments_text(&self) -> String {
        match &self.arguments {
            toml::Value::String(text) => text.clone(),
            // TOML values are JSON values but for dates, which become tables of their text.
            other => serde_json::to_string(other).unwrap_or_else(|_| "{}".to_owned()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the model script is wrong: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("rule {rule} of the model script: {problem}")]
    Rule { rule: usize, problem: String },
    #[error("rule {rule} of the model script: {source}")]
    Audio { rule: usize, source: AudioFileError },
    #[error("unprompted line {line} of the model script: {source}")]
    UnpromptedAudio { line: usize, source: AudioFileError },
}

/// A script with its audio in memory, shared by every session.
#[derive(Clone, Debug)]
pub struct LoadedScript {
    pub(super) script: Arc<ModelScript>,
    /// By the name the script gives it.
    pub(super) audio: Arc<BTreeMap<String, Arc<Voice>>>,
}

/// A line of the script as it sounds.
#[derive(Debug, Default)]
pub(super) struct Voice {
    /// 8 kHz.
    pub(super) mulaw: Vec<u8>,
    /// At two and at three times the rate.
    wide: [OnceLock<Vec<i16>>; 2],
}

impl Voice {
    pub(super) fn new(mulaw: Vec<u8>) -> Self {
        Self { mulaw, ..Self::default() }
    }

    /// Linear, at twice the line's rate or at three times; made when the first client asks for it.
    pub(super) fn wide(&self, times: usize) -> &[i16] {
        self.wide[usize::from(times > 2)].get_or_init(|| {
            let line: Vec<f32> = self.mulaw.iter().map(|&byte| f32::from(g711::mulaw_to_linear(byte))).collect();
            let wide = resample::line_times(&line, times).unwrap_or_else(|problem| {
                tracing::warn!(%problem, times, "no filter: samples are repeated");
                line.iter().flat_map(|&sample| std::iter::repeat_n(sample, times)).collect()
            });
            wide.into_iter().map(resample::to_i16).collect()
        })
    }
}

impl LoadedScript {
    /// Parse TOML. Audio paths start at `base`.
    pub fn parse(text: &str, base: &Path) -> Result<Self, ScriptError> {
        Self::new(toml::from_str(text)?, base)
    }

    /// Read a script file; audio paths start at its folder.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(".")))
    }

    pub fn new(script: ModelScript, base: &Path) -> Result<Self, ScriptError> {
        let mut audio = BTreeMap::new();
        for (n, rule) in script.rules.iter().enumerate() {
            let wrong = |problem: &str| Err(ScriptError::Rule { rule: n + 1, problem: problem.to_owned() });
            if rule.empty && (rule.say.is_some() || rule.call.is_some() || !rule.more_calls.is_empty()) {
                return wrong("`empty` stands beside something to say or call");
            }
            if !rule.empty && rule.say.is_none() && rule.call.is_none() && rule.fail.is_none() {
                return wrong("it does nothing: give `say`, `call`, `fail` or `empty = true`");
            }
            if rule.call.is_none() && !rule.more_calls.is_empty() {
                return wrong("`more_calls` without `call`");
            }
            if rule.nth == Some(0) {
                return wrong("`nth` counts from 1");
            }
            if let Some(say) = &rule.say {
                let mulaw =
                    voices::load(&say.file, base).map_err(|source| ScriptError::Audio { rule: n + 1, source })?;
                audio.insert(say.file.clone(), Arc::new(Voice::new(mulaw)));
            }
        }
        for (n, say) in script.unprompted.iter().enumerate() {
            let source = |source| ScriptError::UnpromptedAudio { line: n + 1, source };
            let mulaw = voices::load(&say.file, base).map_err(source)?;
            audio.insert(say.file.clone(), Arc::new(Voice::new(mulaw)));
        }
        Ok(Self { script: Arc::new(script), audio: Arc::new(audio) })
    }
}

/// What a rule is judged by.
pub(super) struct Asked<'a> {
    pub(super) after: After,
    pub(super) instructions: &'a str,
    /// Text of the newest items.
    pub(super) context: &'a [String],
}

/// How far the script has come.
#[derive(Debug, Default)]
pub(super) struct ScriptProgress {
    /// Rules with `once` that have answered.
    pub(super) used: Vec<usize>,
    pub(super) next_transcript: usize,
    /// Unprompted lines that have been said.
    pub(super) unprompted: usize,
}

impl ModelScript {
    /// The first rule that answers; `seen` counts, by rule, how often the conditions held in this session.
    pub(super) fn choose(
        &self,
        asked: &Asked<'_>,
        seen: &mut BTreeMap<usize, u32>,
        progress: &mut ScriptProgress,
    ) -> Option<(usize, &Rule)> {
        for (n, rule) in self.rules.iter().enumerate() {
            if progress.used.contains(&n) || !rule.holds(asked) {
                continue;
            }
            let times = seen.entry(n).or_default();
            *times += 1;
            if rule.nth.is_some_and(|nth| nth != *times) {
                continue;
            }
            if rule.once {
                progress.used.push(n);
            }
            return Some((n, rule));
        }
        None
    }
}

impl Rule {
    fn holds(&self, asked: &Asked<'_>) -> bool {
        let contains = |text: &str, wanted: &str| text.to_lowercase().contains(&wanted.to_lowercase());
        (self.after == After::Any || self.after == asked.after)
            && self.instructions_contain.as_ref().is_none_or(|wanted| contains(asked.instructions, wanted))
            && self.context_contains.as_ref().is_none_or(|wanted| asked.context.iter().any(|t| contains(t, wanted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LoadedScript, ScriptError> {
        LoadedScript::parse(text, Path::new("."))
    }

    #[test]
    fn rules_are_tried_in_order_with_nth_and_once() {
        let script = parse(
            r#"
            [[rules]]
            after = "user"
            nth = 2
            fail = "second"
            [[rules]]
            after = "user"
            once = true
            fail = "first"
            [[rules]]
            context_contains = "COMMITTED"
            fail = "told"
            [[rules]]
            empty = true
            "#,
        )
        .unwrap()
        .script;
        let (mut seen, mut progress) = (BTreeMap::new(), ScriptProgress::default());
        let mut ask = |after, context: &[String]| {
            script
                .choose(&Asked { after, instructions: "", context }, &mut seen, &mut progress)
                .and_then(|(_, rule)| rule.fail.clone())
        };
        assert_eq!(ask(After::User, &[]).as_deref(), Some("first"));
        assert_eq!(ask(After::User, &[]).as_deref(), Some("second"));
        assert_eq!(ask(After::User, &[]), None);
        assert_eq!(ask(After::Nothing, &["book_table committed".into()]).as_deref(), Some("told"));
    }

    #[test]
    fn a_script_that_cannot_work_is_refused_with_its_rule() {
        for (text, found) in [
            ("[[rules]]\nafter = \"user\"", "rule 1"),
            ("[[rules]]\nempty = true\nfail = \"x\"\n[[rules]]\nempty = true\ncall = { name = \"x\" }", "rule 2"),
            ("[[rules]]\nsay = { file = \"builtin:nobody\", text = \"\" }", "nobody"),
            ("[[rules]]\nsay = { file = \"nowhere.wav\", text = \"\" }", "nowhere.wav"),
            ("[[rules]]\nempty = true\nnth = 0", "counts from 1"),
            ("[[rules]]\nafer = \"user\"", "afer"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(found), "{message}");
        }
    }

    #[test]
    fn arguments_are_json_or_the_text_as_given() {
        let script = parse(
            "[[rules]]\ncall = { name = \"a\", arguments = { party = 2, notes = [\"window\"] } }\nmore_calls = [{ name = \"b\", arguments = \"{oops\" }]",
        )
        .unwrap()
        .script;
        let rule = &script.rules[0];
        assert_eq!(rule.call.as_ref().unwrap().arguments_text(), r#"{"notes":["window"],"party":2}"#);
        assert_eq!(rule.more_calls[0].arguments_text(), "{oops");
    }
}

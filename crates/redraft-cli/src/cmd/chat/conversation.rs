//! What was said: questions with their answers, and files of it.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use redraft::chat::{Content, Message};
use redraft::gguf::Shown;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files;
use crate::model::ModelReport;
use crate::version::VERSION;

/// What a saved conversation says of itself.
const FORMAT: &str = "redraft-chat";

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// What the model said, without thoughts.
    pub(super) text: String,
    /// The tools that it called, as templates expect them.
    pub(super) calls: Option<Value>,
    /// Seed that it was generated with; none when a person wrote it.
    pub(super) seed: Option<u64>,
    /// Why it ended: `stop`, `length`, `interrupted`, or `edited`.
    pub(super) finish_reason: String,
}

impl Answer {
    /// What of an answer the model is told in the turns to come.
    pub(super) fn new(answer: &redraft::chat::Answer, seed: u64, finish_reason: &str) -> Answer {
        let message = answer.to_message();
        let text = if let Content::Text(text) = message.content { text } else { String::new() };
        Answer { text, calls: message.tool_calls, seed: Some(seed), finish_reason: finish_reason.into() }
    }

    fn message(&self) -> Message {
        let content = match &self.calls {
            Some(_) if self.text.is_empty() => Content::None,
            _ => self.text.as_str().into(),
        };
        Message { tool_calls: self.calls.clone(), ..Message::new("assistant", content) }
    }
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) question: String,
    pub(super) answer: Answer,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Conversation {
    pub(super) system: Option<String>,
    pub(super) turns: Vec<Turn>,
    /// So many of the oldest turns the model is no longer told of.
    pub(super) left_out: usize,
}

impl Conversation {
    /// What the model is told when it is asked `question`, without the first `left_out` turns.
    pub(super) fn messages(&self, left_out: usize, question: &str) -> Vec<Message> {
        let system = self.system.iter().map(|s| Message::new("system", s.as_str()));
        let turns = self
            .turns
            .iter()
            .skip(left_out)
            .flat_map(|t| [Message::new("user", t.question.as_str()), t.answer.message()]);
        system.chain(turns).chain([Message::new("user", question)]).collect()
    }

    /// Drops all turns from `n` on.
    pub(super) fn truncate(&mut self, n: usize) {
        self.turns.truncate(n);
        // Where turns went, older ones may have room again.
        self.left_out = 0;
    }

    /// Takes the last turn out. What was left out of the context stays out.
    pub(super) fn pop(&mut self) -> Option<Turn> {
        let turn = self.turns.pop();
        self.left_out = self.left_out.min(self.turns.len());
        turn
    }

    /// Role and text of message `n`, counted from 1, the system message aside; and the turn that it is in.
    pub(super) fn message(&self, n: usize) -> Option<(&'static str, &str, usize)> {
        let i = n.checked_sub(1)?;
        let turn = self.turns.get(i / 2)?;
        Some(match i % 2 {
            0 => ("user", &turn.question, i / 2),
            _ => ("assistant", &turn.answer.text, i / 2),
        })
    }

    /// All messages with their numbers.
    pub(super) fn history(&self) -> String {
        let mut text = self.system.iter().map(|s| format!("system: {s}\n")).collect::<String>();
        for n in 1.. {
            let Some((role, said, turn)) = self.message(n) else { break };
            let aside = if turn < self.left_out { " (left out of the context)" } else { "" };
            let interrupted = role == "assistant" && self.turns[turn].answer.finish_reason == "interrupted";
            let cut = if interrupted { " (interrupted)" } else { "" };
            text.push_str(&format!("{n} {role}{aside}{cut}: {said}\n"));
        }
        if text.is_empty() { "nothing was said yet".into() } else { text.trim_end().into() }
    }
}

/// What a file of a conversation says beside the messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct About {
    pub(super) model: ModelReport,
    pub(super) seed: u64,
    pub(super) sampler: &'static str,
    pub(super) parameters: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct ToSave<'a> {
    format: &'static str,
    version: u32,
    redraft_version: &'static str,
    #[serde(flatten)]
    about: &'a About,
    messages: Vec<Message>,
}

/// A file that was read. Only the messages must be there: other programs' files of messages will do, whatever else
/// they hold.
#[derive(Debug, Deserialize)]
struct Saved {
    #[serde(default)]
    format: Value,
    messages: Vec<Message>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// What else is in a file that this program wrote.
#[derive(Debug, Default, Deserialize)]
struct Own {
    version: Option<u32>,
    model: Option<SavedModel>,
    seed: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct SavedModel {
    name: String,
    sha256_header: String,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    pub(super) conversation: Conversation,
    pub(super) seed: Option<u64>,
    /// Name and digest of the model that answered.
    pub(super) model: Option<(String, String)>,
}

/// Writes a conversation.
///
/// # Errors
/// The file exists and is not to be overwritten; it cannot be written.
pub(super) fn save(
    conversation: &Conversation,
    about: &About,
    path: &Path,
    overwrite: bool,
) -> anyhow::Result<()> {
    if !overwrite && path.symlink_metadata().is_ok() {
        bail!("{} exists: /save! {0} overwrites it", path.display());
    }
    let mut messages: Vec<Message> =
        conversation.system.iter().map(|s| Message::new("system", s.as_str())).collect();
    for turn in &conversation.turns {
        messages.push(Message::new("user", turn.question.as_str()));
        let mut answer = turn.answer.message();
        if let Some(seed) = turn.answer.seed {
            answer.extra.insert("seed".into(), seed.into());
        }
        answer.extra.insert("finish_reason".into(), turn.answer.finish_reason.as_str().into());
        messages.push(answer);
    }
    let file = ToSave { format: FORMAT, version: 1, redraft_version: VERSION, about, messages };
    let mut text = serde_json::to_string_pretty(&file)?;
    text.push('\n');
    files::write(path, text.as_bytes())
}

/// Reads a conversation.
///
/// # Errors
/// The file is too large, no JSON, of a later version, or its messages are not questions and answers in turn.
pub(super) fn load(path: &Path) -> anyhow::Result<Loaded> {
    files::refuse_special(path, "a saved conversation")?;
    let name = path.display();
    let bytes = files::read(path, files::MAX_BYTES)?;
    let no_conversation = || format!("{name} is no saved conversation");
    let saved: Saved = serde_json::from_slice(&bytes).with_context(no_conversation)?;
    let own: Own = match saved.format == FORMAT {
        true => serde_json::from_value(Value::Object(saved.others)).with_context(no_conversation)?,
        false => Own::default(),
    };
    ensure!(
        own.version.is_none_or(|v| v == 1),
        "{name} has format version {}, this program reads version 1",
        own.version.unwrap_or_default()
    );
    let conversation = from_messages(saved.messages).with_context(|| name.to_string())?;
    let model = own.model.map(|m| (m.name, m.sha256_header));
    Ok(Loaded { conversation, seed: own.seed, model })
}

fn from_messages(messages: Vec<Message>) -> anyhow::Result<Conversation> {
    let mut conversation = Conversation::default();
    let mut question = None;
    for (i, message) in messages.into_iter().enumerate() {
        let n = i + 1;
        let text = match message.content {
            Content::Text(text) => text,
            Content::None if message.tool_calls.is_some() => String::new(),
            _ => bail!("message {n} ({}): expected text as its content", Shown(&message.role)),
        };
        match (message.role.as_str(), question.take()) {
            ("system", None) if i == 0 => conversation.system = Some(text),
            ("user", None) => question = Some(text),
            ("assistant", Some(question)) => {
                let reason = message.extra.get("finish_reason").and_then(Value::as_str);
                let answer = Answer {
                    text,
                    calls: message.tool_calls,
                    seed: message.extra.get("seed").and_then(Value::as_u64),
                    finish_reason: reason.unwrap_or("stop").into(),
                };
                conversation.turns.push(Turn { question, answer });
            }
            (role, before) => bail!(
                "message {n}: expected {}, found {}",
                match before {
                    Some(_) => "assistant",
                    None if i == 0 => "system or user",
                    None => "user",
                },
                Shown(role)
            ),
        }
    }
    ensure!(question.is_none(), "the last message is a question: expected its answer after it");
    Ok(conversation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(question: &str, text: &str) -> Turn {
        let answer =
            Answer { text: text.into(), calls: None, seed: Some(u64::MAX), finish_reason: "length".into() };
        Turn { question: question.into(), answer }
    }

    fn conversation() -> Conversation {
        let turns = vec![turn("one?", "1"), turn("two?", "2\n<turn|>")];
        Conversation { system: Some("Count.".into()), turns, left_out: 0 }
    }

    fn about() -> About {
        let model = ModelReport {
            name: "m".into(),
            architecture: "a",
            file_type: "F32".into(),
            sha256_header: "ab".into(),
        };
        About { model, seed: 9, sampler: "s", parameters: Map::new() }
    }

    #[test]
    fn messages_leave_out_the_oldest_turns() {
        let texts = |left_out| -> Vec<String> {
            let text = |m: Message| format!("{}:{}", m.role, serde_json::to_value(m.content).unwrap());
            conversation().messages(left_out, "three?").into_iter().map(text).collect()
        };
        assert_eq!(
            texts(1),
            [r#"system:"Count.""#, r#"user:"two?""#, r#"assistant:"2\n<turn|>""#, r#"user:"three?""#]
        );
        assert_eq!(texts(0).len(), 6);
        assert_eq!(texts(9).len(), 2);
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        save(&conversation(), &about(), &path, false).unwrap();
        let loaded = load(&path).unwrap();
        let want =
            Loaded { conversation: conversation(), seed: Some(9), model: Some(("m".into(), "ab".into())) };
        assert_eq!(loaded, want);
        let again = save(&Conversation::default(), &about(), &path, false).unwrap_err().to_string();
        assert!(again.contains("exists: /save!"), "{again}");
        assert_eq!(load(&path).unwrap(), want, "untouched");
        save(&Conversation::default(), &about(), &path, true).unwrap();
        assert_eq!(load(&path).unwrap().conversation, Conversation::default());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    /// What chat APIs are asked has other things under the same names.
    #[test]
    fn files_of_other_programs_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        let messages = r#"[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]"#;
        for others in
            [r#""model":"m","seed":"none""#, r#""version":"1.0","model":{}"#, r#""format":7,"seed":-1"#]
        {
            std::fs::write(&path, format!("{{{others},\"messages\":{messages}}}")).unwrap();
            let loaded = load(&path).unwrap();
            assert_eq!((loaded.conversation.turns.len(), loaded.seed, loaded.model), (1, None, None));
        }
    }

    #[test]
    fn no_more_turns_are_left_out_than_there_are() {
        let mut c = Conversation { left_out: 2, ..conversation() };
        assert_eq!(c.pop().map(|t| t.question), Some("two?".into()));
        assert_eq!((c.turns.len(), c.left_out), (1, 1));
        c.truncate(0);
        assert_eq!((c.pop(), c.left_out), (None, 0));
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        let user = r#"{"role":"user","content":"x"}"#;
        let cases = [
            ("", "is no saved conversation"),
            ("[1]", "is no saved conversation"),
            ("{}", "messages"),
            (r#"{"format":"redraft-chat","version":2,"messages":[]}"#, "format version 2"),
            (r#"{"format":"redraft-chat","seed":-1,"messages":[]}"#, "is no saved conversation"),
            (&format!(r#"{{"messages":[{user}]}}"#), "the last message is a question"),
            (&format!(r#"{{"messages":[{user},{user}]}}"#), "message 2: expected assistant, found user"),
            (r#"{"messages":[{"role":"tool","content":"x"}]}"#, "expected system or user, found tool"),
            (r#"{"messages":[{"role":"user","content":[{"type":"image"}]}]}"#, "expected text"),
            (r#"{"messages":[{"role":"user"}]}"#, "expected text"),
        ];
        for (text, part) in cases {
            std::fs::write(&path, text).unwrap();
            let e = format!("{:#}", load(&path).unwrap_err());
            assert!(e.contains(part) && e.contains("c.json"), "{text}: {e}");
        }
        assert!(load(dir.path()).unwrap_err().to_string().contains("is a folder"));
    }

    #[test]
    fn messages_have_numbers() {
        let c = Conversation { left_out: 1, ..conversation() };
        assert_eq!(c.message(4), Some(("assistant", "2\n<turn|>", 1)));
        assert_eq!((c.message(0), c.message(5)), (None, None));
        let want = "system: Count.\n1 user (left out of the context): one?\n2 assistant (left out of the context): \
                    1\n3 user: two?\n4 assistant: 2\n<turn|>";
        assert_eq!(c.history(), want);
    }
}

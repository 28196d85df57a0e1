//! What the model is asked: from the command line to token ids.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use redraft::Model;
use redraft::chat::{
    BUILTIN_TEMPLATES, ChatTemplate, MAX_TEMPLATE_BYTES, Message, RenderOptions, builtin_template,
};
use redraft::tokenizer::Specials;

use crate::files;

/// Options of commands that take a prompt.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArgs {
    /// What to ask; - reads it from stdin, as does no PROMPT at all when something is piped in. A newline at
    /// its end is left out.
    #[arg(value_name = "PROMPT", help_heading = None)]
    pub(crate) prompt: Option<String>,

    /// The prompt is the text itself: no chat template, control tokens in it are recognised.
    #[arg(long, conflicts_with_all = ["tokens", "system", "chat_template", "think"])]
    pub(crate) raw: bool,

    /// The prompt as token ids, taken as they are.
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id, conflicts_with_all = ["prompt", "system", "chat_template", "think"])]
    pub(crate) tokens: Option<Vec<u32>>,

    #[command(flatten)]
    pub(crate) template: TemplateArgs,
}

/// How messages become a prompt.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct TemplateArgs {
    /// A system message before the prompt.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// Jinja template instead of the one in the model file: a file, or the name of a built-in one
    #[arg(long, value_name = "FILE|NAME", long_help = template_help())]
    pub(crate) chat_template: Option<String>,

    /// Whether the model is asked to think before it answers; auto leaves it to the template. With on, what it
    /// thought is shown on stderr.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) think: Think,
}

/// `--think`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Think {
    /// Yes.
    On,
    /// No.
    Off,
    /// As the template decides.
    #[default]
    Auto,
}

pub(crate) fn token_id(text: &str) -> Result<u32, String> {
    text.trim()
        .parse()
        .map_err(|_| "expected token ids, whole numbers between commas, as in 2,360,358".into())
}

/// A prompt as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromptIds {
    /// The ids, BOS included.
    pub(crate) ids: Vec<u32>,
    /// What the user should know about how they came about.
    pub(crate) warnings: Vec<String>,
}

impl PromptArgs {
    /// Reads the prompt where it is; nothing is read for `--tokens`.
    ///
    /// # Errors
    /// There is none, it is empty, or it is no UTF-8.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        if self.tokens.is_some() {
            return Ok(String::new());
        }
        given_or_stdin(self.prompt.as_deref(), "prompt", "redraft run \"What is the capital of France?\"")
    }

    /// Token ids of the prompt that [`text`](Self::text) gave. `parse_messages`: control tokens spelled out in
    /// messages are recognised.
    ///
    /// # Errors
    /// Those of template and tokenizer.
    pub(crate) fn ids(&self, text: &str, model: &Model, parse_messages: bool) -> anyhow::Result<PromptIds> {
        if let Some(ids) = &self.tokens {
            return Ok(PromptIds { ids: ids.clone(), warnings: Vec::new() });
        }
        let (ids, warnings) = self.all_ids(&[Asked::Text(text.into())], model, parse_messages)?;
        Ok(PromptIds { ids: ids.concat(), warnings })
    }

    /// Token ids of prompts, and what the user should know. `parse_messages`: control tokens spelled out in messages are
    /// recognised.
    ///
    /// # Errors
    /// Those of template and tokenizer; options that mean nothing for messages.
    pub(crate) fn all_ids(
        &self,
        asked: &[Asked],
        model: &Model,
        parse_messages: bool,
    ) -> anyhow::Result<(Vec<Vec<u32>>, Vec<String>)> {
        if self.raw {
            let ids = |asked: &Asked| match asked {
                Asked::Text(text) => Ok(model.tokenizer().encode_raw_prompt(text, Specials::Parse)?),
                Asked::Messages(_) => {
                    bail!("--raw takes the text itself as the prompt, and messages are no text")
                }
            };
            return Ok((asked.iter().map(ids).collect::<anyhow::Result<_>>()?, Vec::new()));
        }
        self.template.all_ids(asked, model, parse_messages)
    }
}

/// A prompt of a file of prompts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Asked {
    /// What a user says.
    Text(String),
    /// A conversation.
    Messages(Vec<Message>),
}

/// A line of a file of prompts that is JSON. Other fields mean nothing here.
#[derive(serde::Deserialize)]
struct Line {
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
}

/// The prompts of a file: a line is one, or where it begins with `{` a JSON object with `prompt` or `messages`. Empty lines are
/// left out.
///
/// # Errors
/// It cannot be read, a line of JSON is not such an object, or there are none.
pub(crate) fn prompts(path: &Path) -> anyhow::Result<Vec<Asked>> {
    files::refuse_special(path, "a file of prompts")?;
    let name = || path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {}", name()))?;
    asked(&text_of(file).with_context(name)?).with_context(name)
}

/// The prompts in a text, line by line.
pub(crate) fn asked(text: &str) -> anyhow::Result<Vec<Asked>> {
    let prompt = |(i, line): (usize, &str)| {
        if !line.trim_start().starts_with('{') {
            return Ok(Asked::Text(line.into()));
        }
        let about = || format!("line {}", i + 1);
        let line: Line = serde_json::from_str(line).with_context(about)?;
        match (line.prompt, line.messages) {
            (Some(text), None) => Ok(Asked::Text(text)),
            (None, Some(messages)) if !messages.is_empty() => Ok(Asked::Messages(messages)),
            _ => bail!("{}: expected `prompt` or `messages`, and not both", about()),
        }
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let all: Vec<Asked> = lines.map(prompt).collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(!all.is_empty(), "there is no prompt");
    Ok(all)
}

/// Makes prompts of messages.
pub(crate) struct Prompter {
    template: ChatTemplate,
    options: RenderOptions,
    /// What the user should know about the template.
    pub(crate) warnings: Vec<String>,
}

impl Prompter {
    /// Token ids of a prompt that asks for the next message.
    ///
    /// # Errors
    /// Those of template and tokenizer.
    pub(crate) fn ids(&self, messages: &[Message], model: &Model) -> anyhow::Result<Vec<u32>> {
        let prompt = self.template.render(messages, &self.options)?;
        Ok(model.tokenizer().encode_prompt(&prompt)?)
    }

    /// The token that the template puts after an answer to `messages`; none where it puts none, or refuses to.
    pub(crate) fn end_of_answer(&self, messages: &[Message], model: &Model) -> Option<u32> {
        let answered = [messages, &[Message::new("assistant", "1")]].concat();
        let options = RenderOptions { add_generation_prompt: false, ..self.options.clone() };
        let rendered = self.template.render(&answered, &options).ok()?;
        let ids = model.tokenizer().encode_prompt(&rendered).ok()?;
        let ends = model.tokenizer().end_ids();
        ids.into_iter().rev().find(|id| ends.contains(id))
    }
}

impl TemplateArgs {
    /// Token ids of prompts, and what the user should know about the template. `parse_messages`: control tokens spelled out
    /// in messages are recognised.
    ///
    /// # Errors
    /// Those of template and tokenizer.
    pub(crate) fn all_ids(
        &self,
        asked: &[Asked],
        model: &Model,
        parse_messages: bool,
    ) -> anyhow::Result<(Vec<Vec<u32>>, Vec<String>)> {
        let prompter = self.prompter(model, parse_messages)?;
        let system = self.system.as_ref().map(|s| Message::new("system", s.as_str()));
        let ids = |asked: &Asked| {
            let messages = match asked {
                Asked::Text(text) => vec![Message::new("user", text.as_str())],
                Asked::Messages(messages) => messages.clone(),
            };
            prompter.ids(&system.iter().cloned().chain(messages).collect::<Vec<_>>(), model)
        };
        Ok((asked.iter().map(ids).collect::<anyhow::Result<_>>()?, prompter.warnings))
    }

    /// The template for a model. `parse_messages`: control tokens spelled out in messages are recognised.
    ///
    /// # Errors
    /// Those of the template; there is none.
    pub(crate) fn prompter(&self, model: &Model, parse_messages: bool) -> anyhow::Result<Prompter> {
        let tokenizer = model.tokenizer();
        let (template, warning) = match &self.chat_template {
            Some(given) => {
                let missing = builtin_template(given).map_or_else(Vec::new, |t| t.missing(tokenizer));
                let warning = (!missing.is_empty()).then(|| {
                    format!(
                        "--chat-template {given}: the vocabulary has no {}, so the model reads the template's markers as \
                         text and may answer nothing; the model's own template is taken without --chat-template",
                        missing.join(", ")
                    )
                });
                (given_template(given)?, warning)
            }
            None => {
                let (template, builtin) =
                    ChatTemplate::for_tokenizer(tokenizer).context("the chat template of the model file")?;
                let warning = builtin.map(|builtin| {
                    format!(
                        "the model file has no chat template; taking the built-in {} ({})",
                        builtin.name, builtin.about
                    )
                });
                (template, warning)
            }
        };
        let options = RenderOptions {
            add_generation_prompt: true,
            enable_thinking: match self.think {
                Think::On => Some(true),
                Think::Off => Some(false),
                Think::Auto => None,
            },
            message_specials: if parse_messages { Specials::Parse } else { Specials::Text },
            ..RenderOptions::for_tokenizer(tokenizer)
        };
        let mut prompter = Prompter { template, options, warnings: warning.into_iter().collect() };
        self.check_effects(&mut prompter)?;
        Ok(prompter)
    }

    /// Looks whether the template makes anything of what is asked of it.
    ///
    /// # Errors
    /// It leaves the system message out.
    fn check_effects(&self, prompter: &mut Prompter) -> anyhow::Result<()> {
        let user = Message::new("user", "1");
        let system = self.system.as_ref().map(|s| Message::new("system", s.as_str()));
        let messages: Vec<Message> = system.into_iter().chain([user.clone()]).collect();
        // A template that refuses such messages says so when it is asked.
        let Ok(asked) = prompter.template.render(&messages, &prompter.options) else { return Ok(()) };
        let without = prompter.template.render(&[user], &prompter.options);
        if self.system.as_ref().is_some_and(|s| !s.trim().is_empty()) && without.is_ok_and(|w| w == asked) {
            bail!("--system changes nothing: the chat template leaves system messages out");
        }
        let thinking = |enable_thinking| {
            let options = RenderOptions { enable_thinking, ..prompter.options.clone() };
            prompter.template.render(&messages, &options).is_ok_and(|other| other == asked)
        };
        if self.think != Think::Auto && [None, Some(true), Some(false)].into_iter().all(thinking) {
            prompter
                .warnings
                .push("--think changes nothing in the prompt: the chat template does not know of it".into());
        }
        Ok(())
    }
}

/// The help of `--chat-template`, with the names.
fn template_help() -> String {
    let names: Vec<String> =
        BUILTIN_TEMPLATES.iter().map(|t| format!("\n- {}: {}", t.name, t.about)).collect();
    format!(
        "Jinja template instead of the one in the model file: a file, or the name of a built-in one. A model file without \
         a template takes the first that fits its vocabulary.\n{}",
        names.concat()
    )
}

/// The template that `--chat-template` asks for: a built-in one by its name, else a file.
fn given_template(given: &str) -> anyhow::Result<ChatTemplate> {
    if let Some(builtin) = builtin_template(given) {
        return Ok(ChatTemplate::from_source(builtin.source)?);
    }
    let path = Path::new(given);
    files::refuse_special(path, "a chat template")?;
    let bytes = files::read(path, MAX_TEMPLATE_BYTES).with_context(|| {
        let names: Vec<&str> = BUILTIN_TEMPLATES.iter().map(|t| t.name).collect();
        format!("--chat-template: expected a file, or one of {}", names.join(", "))
    })?;
    let about = || given.to_owned();
    ChatTemplate::from_source(&String::from_utf8(bytes).with_context(about)?).with_context(about)
}

/// The text of an argument, or of stdin. `what` it is, and an `example` of a command with it.
///
/// # Errors
/// There is none, it is empty, or it is no UTF-8.
pub(crate) fn given_or_stdin(given: Option<&str>, what: &str, example: &str) -> anyhow::Result<String> {
    let text = match given {
        Some("-") => read_stdin()?,
        Some(text) => text.to_string(),
        None if std::io::stdin().is_terminal() => bail!(
            "there is no {what}: give it as an argument, as in `{example}`, or give - to type it and end with Ctrl-D"
        ),
        None => read_stdin()?,
    };
    if text.trim().is_empty() {
        bail!("the {what} is empty: give it as an argument or through a pipe");
    }
    Ok(text)
}

/// Most bytes of a text from stdin, or from a file of texts: a pipe may never end.
pub(crate) const MAX_TEXT_BYTES: u64 = 64 << 20;

/// All of stdin without its last newline.
pub(crate) fn read_stdin() -> anyhow::Result<String> {
    let mut text = text_of(std::io::stdin().lock()).context("cannot read the text from stdin")?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// All of a text.
///
/// # Errors
/// It cannot be read, is no UTF-8, or has more than [`MAX_TEXT_BYTES`].
pub(crate) fn text_of(source: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    source.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= MAX_TEXT_BYTES, "it has more than {MAX_TEXT_BYTES} bytes");
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        anyhow::anyhow!("it is no UTF-8 text: wrong bytes at offset {at}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_lines_of_text_or_json() {
        let text = "Name a colour.\n\n  \n{\"prompt\": \"a\\nb\", \"id\": 3}\n{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}\r\n";
        let messages = vec![Message::new("user", "c")];
        let want =
            [Asked::Text("Name a colour.".into()), Asked::Text("a\nb".into()), Asked::Messages(messages)];
        assert_eq!(asked(text).unwrap(), want);
        for (bad, said) in [
            ("", "there is no prompt"),
            ("a\n{\"prompt\": 1}", "line 2"),
            ("{}", "line 1: expected `prompt`"),
            ("{\"messages\": []}", "line 1: expected `prompt`"),
            ("{\"prompt\": \"a\", \"messages\": [{\"role\": \"user\"}]}", "not both"),
        ] {
            let e = format!("{:#}", asked(bad).unwrap_err());
            assert!(e.contains(said), "{bad}: {e}");
        }
    }

    #[test]
    fn texts_are_bounded_and_utf_8() {
        assert_eq!(text_of(&b"caf\xc3\xa9\n"[..]).unwrap(), "café\n");
        let wrong = text_of(&b"caf\xe9"[..]).unwrap_err().to_string();
        assert!(wrong.contains("offset 3"), "{wrong}");
        let endless = text_of(std::io::repeat(b'x')).unwrap_err().to_string();
        assert!(endless.contains("more than 67108864 bytes"), "{endless}");
    }
}

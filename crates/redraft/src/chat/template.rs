//! Chat templates: Jinja, set up as transformers sets it up.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::machinery::Token;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value as JinjaValue};
use serde_json::{Map, Value};

use super::error::{ChatError, Sources};
use super::guard::{self, ControlTokens, Marking};
use super::meter::Meter;
use super::rendered::RenderedPrompt;
use super::rewrite::{self, Prepared};
use super::{BuiltinTemplate, Message, functions, sandbox};
use crate::tokenizer::{Specials, Tokenizer};

/// Longest template that is accepted, fifty times the longest one in use.
pub const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Steps that a render may take beside those that its input allows: one step is an instruction, 64 bytes of
/// text or a visit of an item. Common templates take a few hundred per message and a hundred per parameter of a
/// tool.
const BASE_BUDGET: u64 = 100_000;

/// Steps for each value of the messages and tools.
const STEPS_PER_VALUE: u64 = 200;

/// Deepest nesting of blocks and macros.
const MAX_DEPTH: usize = 200;

/// The name under which the engine knows the template. It has no file type, which would turn escaping on.
const NAME: &str = "chat";

/// A chat template that is ready to render.
#[derive(Debug)]
pub struct ChatTemplate {
    sources: Sources,
    env: Environment<'static>,
    literals: Vec<String>,
}

/// What a template is rendered with beside the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Whether the prompt ends with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Text of the begin-of-sequence token.
    pub bos_token: Option<String>,
    /// Text of the end-of-sequence token.
    pub eos_token: Option<String>,
    /// Whether the model is asked to think; templates choose when it is `None`.
    pub enable_thinking: Option<bool>,
    /// Tools that the model may call, as the template expects them.
    pub tools: Option<Value>,
    /// Other variables of the template. They are not guarded: text of unknown origin belongs in messages.
    pub extra: Map<String, Value>,
    /// Whether control tokens spelled out inside messages are recognised, as transformers does it.
    pub message_specials: Specials,
    /// The tokens that messages are guarded against when they are not.
    pub control_tokens: ControlTokens,
    /// The time that `strftime_now` prints, in seconds since 1970 (UTC); `None` is the system's.
    pub unix_seconds: Option<i64>,
}

impl RenderOptions {
    /// The options that a tokenizer implies: its BOS and EOS, and its control tokens.
    pub fn for_tokenizer(tokenizer: &Tokenizer) -> RenderOptions {
        let text = |id: Option<u32>| Some(tokenizer.piece(id?)?.text.to_owned());
        RenderOptions {
            bos_token: text(tokenizer.bos()),
            eos_token: text(tokenizer.eos()),
            control_tokens: tokenizer.control_tokens().clone(),
            ..RenderOptions::default()
        }
    }
}

impl ChatTemplate {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// [`ChatError::Syntax`], [`ChatError::Namespace`] and [`ChatError::TooComplex`] with the line;
    /// [`ChatError::TooLong`].
    pub fn from_source(source: &str) -> Result<ChatTemplate, ChatError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(ChatError::TooLong { found: source.len(), max: MAX_TEMPLATE_BYTES });
        }
        // Chains of operators are read one inside the other.
        on_large_stack(|| ChatTemplate::read(source))
    }

    /// The template of a model: its file's, or the built-in one that fits its vocabulary, which is then the second value.
    ///
    /// # Errors
    ///
    /// As [`from_source`](Self::from_source).
    pub fn for_tokenizer(
        tokenizer: &Tokenizer,
    ) -> Result<(ChatTemplate, Option<&'static BuiltinTemplate>), ChatError> {
        let builtin = match tokenizer.chat_template() {
            Some(source) => return Ok((ChatTemplate::from_source(source)?, None)),
            None => BuiltinTemplate::fitting(tokenizer),
        };
        Ok((ChatTemplate::from_source(builtin.source)?, Some(builtin)))
    }

    fn read(source: &str) -> Result<ChatTemplate, ChatError> {
        let original = without_generation_tags(source);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| ChatError::Value { what: "the syntax", reason: e.to_string() })?;
        let tokens = rewrite::tokens(&original, syntax.clone())?;
        if let Some((at, name)) = sandbox::escaping_namespace(&tokens) {
            return Err(ChatError::Namespace { line: rewrite::line_of(&original, at), name });
        }
        let literals = tokens.iter().filter_map(|(t, _)| match t {
            Token::Str(text) => Some((*text).to_owned()),
            Token::String(text) => Some(text.to_string()),
            _ => None,
        });
        let literals = literals.collect();
        let prepared = Prepared::new(&original, &tokens);
        drop(tokens);
        let sources = Sources { original, prepared };
        let mut env = Environment::new();
        env.set_syntax(syntax);
        env.set_recursion_limit(MAX_DEPTH);
        functions::add_static(&mut env);
        env.add_template_owned(NAME, sources.prepared.source.clone())
            .map_err(|e| ChatError::syntax(&sources.original, Some(&sources.prepared), &e))?;
        Ok(ChatTemplate { literals, sources, env })
    }

    /// Renders messages.
    ///
    /// # Errors
    ///
    /// [`ChatError::Render`] and [`ChatError::Raised`] with the line of the template,
    /// [`ChatError::OverBudget`], [`ChatError::Unguardable`], [`ChatError::NotText`].
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<RenderedPrompt, ChatError> {
        if let Some((message, part)) = messages.iter().enumerate().find_map(|(i, m)| Some((i, m.media()?))) {
            return Err(ChatError::NotText { message, part: part.to_owned() });
        }
        on_large_stack(|| self.render_here(messages, options))
    }

    fn render_here(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<RenderedPrompt, ChatError> {
        // Messages and tools are what a conversation brings; all of it is guarded.
        let mut talk = Map::new();
        let messages = serde_json::to_value(messages)
            .map_err(|e| ChatError::Value { what: "messages", reason: e.to_string() })?;
        talk.insert("messages".to_owned(), messages);
        if let Some(tools) = &options.tools {
            talk.insert("tools".to_owned(), tools.clone());
        }
        let talk = Value::Object(talk);
        // Renders of the same prompt must see the same time.
        let now = options.unix_seconds.unwrap_or_else(system_seconds);

        let plain = self.render_once(&talk, options, now, None)?;
        if options.message_specials == Specials::Parse {
            return Ok(RenderedPrompt::trusted(plain));
        }
        let tokens = &options.control_tokens;
        let Some(dangerous) = guard::first_dangerous(&talk, tokens) else {
            return Ok(RenderedPrompt::guarded(plain, Vec::new(), tokens.clone()));
        };
        self.guards(&talk, options, now, &plain)
            .map(|guards| RenderedPrompt::guarded(plain, guards, tokens.clone()))
            .ok_or_else(|| ChatError::Unguardable { text: dangerous.chars().take(40).collect() })
    }

    /// The places in `plain` where a control token could start and that came out of a message.
    fn guards(&self, talk: &Value, options: &RenderOptions, now: i64, plain: &str) -> Option<Vec<usize>> {
        let in_talk = guard::strings(talk);
        let in_extra: Vec<&str> = options.extra.values().flat_map(guard::strings).collect();
        let others = [
            Some(self.sources.original.as_str()),
            options.bos_token.as_deref(),
            options.eos_token.as_deref(),
        ];
        let marker = guard::choose_marker(
            in_talk.iter().chain(&in_extra).copied().chain(others.into_iter().flatten()),
        )?;
        let attempt = |marking: &Marking<'_>| {
            // A template that fails on marked messages looks at what was marked.
            let rendered = self.render_once(&marking.mark(talk), options, now, Some(marker)).ok()?;
            marking.unmark(&rendered, plain)
        };
        let strict = Marking::strict(marker, &options.control_tokens);
        attempt(&strict).or_else(|| attempt(&strict.lenient(&self.literals)?))
    }

    fn render_once(
        &self,
        talk: &Value,
        options: &RenderOptions,
        now: i64,
        marker: Option<char>,
    ) -> Result<String, ChatError> {
        let mut env = self.env.clone();
        let strings = guard::strings(talk);
        let input: usize = strings.iter().map(|s| s.len()).sum();
        let budget = (strings.len() as u64)
            .saturating_mul(STEPS_PER_VALUE)
            .saturating_add(input as u64)
            .saturating_add(BASE_BUDGET);
        let meter = Meter::new(budget, input);
        functions::add_dynamic(&mut env, marker, now);
        functions::add_metered(&mut env, &self.sources.prepared.function, &meter);
        env.set_fuel(Some(budget));

        let mut context = options.extra.clone();
        let tokens = [("bos_token", &options.bos_token), ("eos_token", &options.eos_token)];
        context.extend(tokens.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v.clone()?.into()))));
        context.insert("add_generation_prompt".to_owned(), options.add_generation_prompt.into());
        context.extend(options.enable_thinking.map(|on| ("enable_thinking".to_owned(), on.into())));
        // `tools` and `documents` are always defined for a template; others test them with `is none`.
        for name in ["tools", "documents"] {
            context.entry(name).or_insert(Value::Null);
        }
        if let Value::Object(talk) = talk {
            context.extend(talk.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        let rendered = env.get_template(NAME).and_then(|t| t.render(JinjaValue::from(Serde(&context))));
        // With empty lists in place of the real ones, what was rendered is wrong and other errors mislead.
        if let Some(line) = meter.overrun() {
            return Err(ChatError::OverBudget { line, budget });
        }
        rendered.map_err(|e| ChatError::render(&self.sources, &e, budget))
    }
}

fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T, ChatError> + Send) -> Result<T, ChatError> {
    sandbox::on_large_stack(work)
        .map_err(|e| ChatError::Value { what: "a thread to work on", reason: e.to_string() })?
}

/// Seconds since 1970.
fn system_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// Turns `{% generation %}` and `{% endgeneration %}` into `{% with %}` and `{% endwith %}`. The tags mark what
/// a model is trained on and print nothing; `with` has the same scope, and the same white space goes away
/// around it.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let name_at = tag.find(|c: char| !c.is_whitespace() && c != '-' && c != '+').unwrap_or(tag.len());
        let (space, name) = tag.split_at(name_at);
        out.push_str(space);
        rest = name;
        for (from, to) in [("generation", "with"), ("endgeneration", "endwith")] {
            if let Some(tail) = name.strip_prefix(from)
                && tail
                    .trim_start_matches(|c: char| c.is_whitespace() || c == '-' || c == '+')
                    .starts_with("%}")
            {
                out.push_str(to);
                rest = tail;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five thousand lists inside each other are freed, and a namespace inside itself is refused.
    #[test]
    fn deep_and_circular_values_do_not_overflow_the_stack() {
        let deep =
            "{% set n = namespace(x=0) %}{% for i in range(5000) %}{% set n.x = [n.x] %}{% endfor %}done";
        let template = ChatTemplate::from_source(deep).unwrap();
        assert_eq!(template.render(&[], &RenderOptions::default()).unwrap().text(), "done");
        let circle = "\n{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}";
        assert_eq!(
            ChatTemplate::from_source(circle).unwrap_err(),
            ChatError::Namespace { line: 2, name: "ns".into() }
        );
    }

    #[test]
    fn generation_tags_become_scopes() {
        for (source, expected) in [
            ("{% generation %}x{% endgeneration %}", "{% with %}x{% endwith %}"),
            ("{%- generation -%}\nx{%- endgeneration -%}", "{%- with -%}\nx{%- endwith -%}"),
            ("{%generation%}{%endgeneration%}", "{%with%}{%endwith%}"),
            ("{% if generation %}{% generations %}", "{% if generation %}{% generations %}"),
            ("{% set generation = 1 %}é{%", "{% set generation = 1 %}é{%"),
        ] {
            assert_eq!(without_generation_tags(source), expected);
        }
    }
}

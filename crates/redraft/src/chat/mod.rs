//! From messages to the text a model is prompted with, through the Jinja template of its file.
//!
//! ```
//! use redraft::chat::{ChatTemplate, Message, RenderOptions, builtin_template};
//!
//! let gemma = builtin_template("gemma4").expect("it is one of the list");
//! let template = ChatTemplate::from_source(gemma.source)?;
//! let options = RenderOptions {
//!     add_generation_prompt: true,
//!     bos_token: Some("<bos>".into()),
//!     ..RenderOptions::default()
//! };
//! let prompt = template.render(&[Message::new("user", "Hello")], &options)?;
//! assert_eq!(prompt.text(), "<bos><|turn>user\nHello<turn|>\n<|turn>model\n");
//! # Ok::<(), redraft::chat::ChatError>(())
//! ```
//!
//! The way back, from what a model writes to what it says, thinks and calls, is an [`AnswerParser`].
//!
//! Templates are programs from files of unknown origin: they run with a budget and cannot reach anything but
//! the messages. Messages are texts of unknown origin: what they contain cannot become a control token (see
//! [`RenderedPrompt`]).

mod builtin;
mod error;
mod functions;
mod guard;
mod json;
mod message;
mod meter;
mod parse;
mod rendered;
mod rewrite;
mod sandbox;
mod template;
mod time;

pub use self::builtin::{BUILTIN_TEMPLATES, BuiltinTemplate, builtin_template};
pub use self::error::ChatError;
pub use self::guard::ControlTokens;
pub use self::message::{Content, Message};
pub(crate) use self::parse::CallForm;
pub use self::parse::{Answer, AnswerParser, Delta, FORMATS, OutputFormat, ToolCall, Warning};
pub use self::rendered::RenderedPrompt;
pub use self::sandbox::on_large_stack;
pub use self::template::{ChatTemplate, MAX_TEMPLATE_BYTES, RenderOptions};

//! A message of a conversation, in the shape that chat APIs and chat templates share.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` or what else the template knows.
    pub role: String,
    /// What is said.
    #[serde(default)]
    pub content: Content,
    /// The calls that an assistant made, as the template expects them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Value>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What an assistant thought before it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Other fields; templates see them like the ones above.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message of text.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }
}

/// Parts of a message that are not text: those of chat APIs, and those that templates know.
const MEDIA: [&str; 10] = [
    "image",
    "image_url",
    "input_image",
    "audio",
    "audio_url",
    "input_audio",
    "video",
    "video_url",
    "file",
    "input_file",
];

impl Message {
    /// The type of a part that is not text.
    pub(crate) fn media(&self) -> Option<&str> {
        let Content::Parts(parts) = &self.content else { return None };
        parts.iter().find_map(|part| {
            // Templates go by the type or by the field.
            let kind = part.get("type").and_then(Value::as_str);
            let field = || MEDIA.into_iter().find(|m| part.get(m).is_some());
            kind.filter(|k| MEDIA.contains(k)).or_else(field)
        })
    }
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Nothing, as in a message that only calls tools.
    #[default]
    None,
    /// Text.
    Text(String),
    /// Parts such as `{"type": "text", "text": "…"}`.
    Parts(Vec<Value>),
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Text(text)
    }
}

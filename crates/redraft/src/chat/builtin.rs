//! The template for files that carry none.

/// Turns between `<|turn>` and `<turn|>`, in the style of Gemma 4: the role, a newline, the trimmed text.
const GEMMA: &str = "{{ bos_token }}{% for message in messages %}\
    {{ '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}\
    {% if message.content is string %}{{ message.content | trim }}\
    {% else %}{% for part in message.content or [] %}{{ part.text | default('') | trim }}{% endfor %}{% endif %}\
    {{ '<turn|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}";

/// A chat template for files without one: `<bos><|turn>user\n…<turn|>\n<|turn>model\n`.
pub fn builtin_template() -> &'static str {
    GEMMA
}

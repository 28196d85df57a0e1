"""Renders the templates of this folder and the built-in ones with Jinja2, set up as transformers does, and writes goldens.json.
What the built-in ones give is checked against the formats as README.md describes them, in plain Python.

    pip install jinja2==3.1.6 && python make_goldens.py
"""
import datetime
import json
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
BUILTIN = HERE / "../../crates/redraft/src/chat/builtin"
SECONDS = 951_782_400  # 29 February 2000


class Generation(Extension):
    """The tag that marks what an assistant says; it prints its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body", []), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime.datetime.fromtimestamp(SECONDS, datetime.timezone.utc)
    env.globals["strftime_now"] = now.strftime
    return env


def say(*pairs):
    return [{"role": r, "content": c} for r, c in pairs]


WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "It's <b>warm</b> & \"sunny\" in München",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "enum": ["Köln", "Bonn"]}, "days": {"type": "integer", "default": 3}}, "required": ["city"]}}}
CALL = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 1.0, "x": None}}}]
VALUE = {"name": "z\u00e9 \U0001f642 <&'\"\\/\t\n\r\x08\x0c\x00\x7f\u2028", "a": [1, -2, 1e16, 1e-5, 0.1, 1.5e300, 123456789012345678],
         "empty": {}, "list": [[], [[]], {"k": [True, None]}], "B": ""}

NESTED = {"type": "function", "function": {"name": "file-search.v2", "description": "Finds files", "parameters": {
    "type": "object", "properties": {"where": {"type": "object", "description": "place", "properties": {
        "dirs": {"type": "array", "items": {"type": "string"}}, "deep": {"type": "boolean"}}, "required": ["dirs"]},
        "limit": {"type": "integer"}}, "required": ["where", "limit"]}}}
ASK = say(("system", " Be brief.\n"), ("user", " hi "), ("assistant", "Hello!\n"), ("user", "bye <|turn>"))
TOOL_TALK = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather?"},
             {"role": "assistant", "content": "Let me look.", "reasoning_content": "I need the weather.", "tool_calls": CALL},
             {"role": "tool", "name": "weather", "content": "{\"t\": 21}"}, {"role": "tool", "name": "weather", "content": "cold"}]
THOUGHTS = say(("user", "a")) + [{"role": "assistant", "content": "<|channel>thought\nold\n<channel|>b", "reasoning_content": "old"}] + say(
    ("user", "c")) + [{"role": "assistant", "content": "", "reasoning_content": "new", "tool_calls": CALL + CALL}]

CASES = [
    ("gemma", {"messages": say(("user", " hi "), ("assistant", "yes?"), ("user", "bye")), "add_generation_prompt": True}),
    ("gemma", {"messages": say(("system", "\x1d Be brief.\n"), ("user", "<|turn>model\nno<turn|> <bos>"))}),
    ("gemma", {"messages": [], "add_generation_prompt": True}),
    ("turns", {"messages": say(("user", "one"), ("assistant", " two "), ("user", "three\n"))}),
    ("turns", {"messages": say(("system", " S\n"), ("user", "<s>[INST]"), ("assistant", "")), "add_generation_prompt": True}),
    ("turns", {"messages": say(("user", "one"), ("user", "two"))}),
    ("tools", {"messages": say(("user", "hi")), "add_generation_prompt": True}),
    ("tools", {"messages": say(("user", "hi")), "add_generation_prompt": True, "enable_thinking": True}),
    ("tools", {"messages": say(("user", "hi")), "add_generation_prompt": True, "enable_thinking": False}),
    ("tools", {"messages": say(("user", "a"), ("ignored", "x"), ("assistant", "<think>\nold\n</think>\n\nb"), ("user", "c"),
                               ("assistant", "<think>new</think>d")), "tools": [WEATHER]}),
    ("tools", {"messages": [{"role": "user", "content": [{"type": "note"}, {"type": "text", "text": " look <turn|>"}]},
                            {"role": "assistant", "content": None, "tool_calls": CALL},
                            {"role": "tool", "content": "{\"t\": 21}", "name": "weather"}], "tools": [WEATHER, WEATHER]}),
    *[(t, {"messages": m, "tools": tools, "add_generation_prompt": True, "enable_thinking": think})
      for t in ("gemma4", "chatml") for m, tools in ((ASK, None), (TOOL_TALK, [WEATHER, NESTED]), (THOUGHTS, None)) for think in (True, False)],
    ("gemma4", {"messages": TOOL_TALK + say(("assistant", "It is warm."), ("user", "Thanks")), "tools": [WEATHER]}),
    ("gemma4", {"messages": [{"role": "user", "content": [{"type": "text", "text": " what? "}, {"type": "text", "text": "yes"}]}], "add_generation_prompt": True}),
    ("chatml", {"messages": say(("user", "hi"), ("assistant", "<think>\na\n</think>\n\nb"), ("user", "c"))}),
    ("headers", {"messages": ASK, "add_generation_prompt": True}),
    ("headers", {"messages": TOOL_TALK[:3] + [{"role": "tool", "content": [{"t": [21, None]}]}], "tools": [WEATHER, NESTED]}),
    ("headers", {"messages": say(("system", "s")), "tools": [WEATHER]}),
    ("headers", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": CALL + CALL}]}),
    ("gemma3", {"messages": ASK, "add_generation_prompt": True}),
    ("gemma3", {"messages": [{"role": "system", "content": [{"type": "text", "text": "S"}]},
                             {"role": "user", "content": [{"type": "text", "text": " look "}]}]}),
    ("gemma3", {"messages": say(("user", "a"), ("user", "b"))}),
    ("gemma3", {"messages": [{"role": "user", "content": None}]}),
    ("containers", {"messages": say(("system", "s"), ("user", "one"), ("assistant", "three"), ("user", "x"))}),
    ("values", {"messages": [{"role": "a", "content": "", "value": VALUE}, {"role": "b", "content": ""}]}),
]

PARTS = [{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b\n"}]}]
BUILTIN_CASES = [
    {"messages": say(("user", " hi ")), "add_generation_prompt": True},
    {"messages": say(("user", "hi")), "add_generation_prompt": True, "enable_thinking": True},
    {"messages": say(("user", "hi")), "add_generation_prompt": True, "enable_thinking": False},
    {"messages": ASK, "add_generation_prompt": True},
    {"messages": ASK[:3]},
    {"messages": PARTS + say(("assistant", None), ("system", "late"), ("user", "c")), "add_generation_prompt": True},
    {"messages": [], "add_generation_prompt": True},
]


def text_of(m):
    c = m.get("content")
    return c if isinstance(c, str) else "".join(part.get("text", "") for part in c or [])


def gemma4(messages, bos, ask, think):
    # Parts are trimmed one by one.
    parts = [m["content"] if isinstance(m["content"], list) else [{"text": m["content"] or ""}] for m in messages]
    texts = ["".join(p["text"].strip() for p in ps) for ps in parts]
    roles = ["model" if m["role"] == "assistant" else m["role"] for m in messages]
    return bos + "".join(f"<|turn>{r}\n{t}<turn|>\n" for r, t in zip(roles, texts)) + "<|turn>model\n" * ask


def llama3(messages, bos, ask, think):
    head = "<|start_header_id|>{}<|end_header_id|>\n\n".format
    said = "".join(head(m["role"]) + text_of(m).strip() + "<|eot_id|>" for m in messages)
    return (bos if messages else "") + said + head("assistant") * ask


def chatml(messages, bos, ask, think):
    said = "".join(f"<|im_start|>{m['role']}\n{text_of(m)}<|im_end|>\n" for m in messages)
    return said + "<|im_start|>assistant\n" * ask + "<think>\n\n</think>\n\n" * (ask and think is False)


def dream(messages, bos, ask, think):
    needs = messages and messages[0]["role"] != "system"
    first = say(("system", "You are a helpful assistant.")) if needs else []
    return chatml(first + messages, bos, ask, None)


def ling(messages, bos, ask, think):
    names = {"system": "SYSTEM", "user": "HUMAN", "assistant": "ASSISTANT"}
    system, rest = "", messages
    if messages and messages[0]["role"] == "system":
        system, rest = text_of(messages[0]) + "\n", messages[1:]
    out = f"<role>SYSTEM</role>{system}detailed thinking {'on' if think else 'off'}<|role_end|>"
    out += "".join(f"<role>{names[m['role']]}</role>{text_of(m)}<|role_end|>" for m in rest)
    return out + "<role>ASSISTANT</role>" * ask


def qa(messages, bos, ask, think):
    form = {"user": "Question: {}\nAnswer:", "assistant": " {}\n\n", "system": "{}\n\n"}
    return "".join(form[m["role"]].format(text_of(m).strip()) for m in messages)


def main():
    env = environment()
    out = []
    formats = [gemma4, llama3, chatml, dream, ling, qa]
    cases = CASES + [(f.__name__, given) for f in formats for given in BUILTIN_CASES]
    cases.append(("ling", {"messages": say(("tool", "21"), ("poet", "x"))}))
    for i, (template, given) in enumerate(cases):
        context = {"bos_token": "<bos>", "eos_token": "<eos>", "add_generation_prompt": False, "tools": None,
                   "documents": None, **given}
        builtin = i >= len(CASES)
        case = {"builtin" if builtin else "template": template, **given}
        try:
            source = ((BUILTIN if builtin else HERE) / f"{template}.jinja").read_text("utf-8")
            case["rendered"] = env.from_string(source).render(**context)
        except jinja2.exceptions.TemplateError as e:
            case["raised"] = str(e)
        if builtin and "rendered" in case:
            form = next(f for f in formats if f.__name__ == template)
            expected = form(given["messages"], "<bos>", given.get("add_generation_prompt", False), given.get("enable_thinking"))
            assert case["rendered"] == expected, (template, case["rendered"], expected)
        out.append(case)
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in out)
    note = {"jinja2": jinja2.__version__, "bos_token": "<bos>", "eos_token": "<eos>", "unix_seconds": SECONDS}
    (HERE / "goldens.json").write_text(json.dumps(note)[:-1] + ', "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()

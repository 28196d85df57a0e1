"""Renders the templates of this folder with Jinja2, set up as transformers does, and writes goldens.json.

    pip install jinja2==3.1.6 && python make_goldens.py
"""
import datetime
import json
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
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


def main():
    env = environment()
    out = []
    for template, given in CASES:
        context = {"bos_token": "<bos>", "eos_token": "<eos>", "add_generation_prompt": False, "tools": None,
                   "documents": None, **given}
        case = {"template": template, **given}
        try:
            case["rendered"] = env.from_string((HERE / f"{template}.jinja").read_text("utf-8")).render(**context)
        except jinja2.exceptions.TemplateError as e:
            case["raised"] = str(e)
        out.append(case)
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in out)
    note = {"jinja2": jinja2.__version__, "bos_token": "<bos>", "eos_token": "<eos>", "unix_seconds": SECONDS}
    (HERE / "goldens.json").write_text(json.dumps(note)[:-1] + ', "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()

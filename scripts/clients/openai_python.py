"""The Python package `openai`."""

import openai
import pydantic
from openai import OpenAI

PATH = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS = {"diffusion": {"steps": 4096, "confidence": 0}}


def client(url, key="none", **more):
    return OpenAI(base_url=f"{url}/v1", api_key=key, **{"max_retries": 0, **more})


def check_models(servers):
    models = client(servers.url).models.list().data
    assert [m.object for m in models] == ["model"]
    assert client(servers.url).models.retrieve(models[0].id).id == models[0].id


def check_chat(servers):
    api = client(servers.url)
    model = api.models.list().data[0].id
    answer = api.chat.completions.create(model=model, messages=QUESTION, seed=3, max_completion_tokens=40)
    choice = answer.choices[0]
    assert "Paris" in choice.message.content and choice.message.role == "assistant" and choice.finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0 and answer.system_fingerprint.startswith("fp_")
    again = api.chat.completions.create(model=model, messages=QUESTION, seed=3, max_completion_tokens=40, n=2)
    assert again.choices[0].message.content == choice.message.content and [c.index for c in again.choices] == [0, 1]


def check_stream(servers):
    api = client(servers.url)
    whole = api.chat.completions.create(model="redraft-tiny", messages=QUESTION).choices[0].message.content
    options = {"include_usage": True, "include_drafts": True}
    text, drafts, usage, finish = "", 0, None, None
    with api.chat.completions.create(model="redraft-tiny", messages=QUESTION, stream=True, stream_options=options) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            drafts += "diffusion" in (chunk.model_extra or {})
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
    assert text == whole and finish == "stop" and drafts > 0 and usage.completion_tokens > 0


def check_stream_helper(servers):
    api = client(servers.url)
    with api.chat.completions.stream(model="redraft-tiny", messages=QUESTION) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "content.delta" in kinds and "Paris" in final.choices[0].message.content


def check_completions_and_infilling(servers):
    api = client(servers.url)
    answer = api.completions.create(model="redraft-tiny", prompt="The capital of France is", max_tokens=12, seed=3)
    assert answer.object == "text_completion" and answer.choices[0].text
    answer = api.completions.create(model="redraft-tiny", prompt="55 + ", suffix=" = 123", max_tokens=4)
    assert answer.choices[0].text.strip() and answer.choices[0].finish_reason == "stop"


class Capital(pydantic.BaseModel):
    capital: str
    inhabitants: int


def check_structured_output(servers):
    answer = client(servers.url).chat.completions.parse(
        model="redraft-tiny", messages=QUESTION, response_format=Capital, max_completion_tokens=100)
    assert isinstance(answer.choices[0].message.parsed, Capital)


def check_tools(servers):
    """A model whose template knows no tools says so; one that does answers."""
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    tools = [{"type": "function", "function": function}]
    api = client(servers.url)
    try:
        answer = api.chat.completions.create(model="redraft-tiny", messages=QUESTION, tools=tools)
        assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
    except openai.BadRequestError as error:
        assert error.param == "tools", error
    answer = api.chat.completions.create(model="redraft-tiny", messages=QUESTION, tools=tools, tool_choice="none")
    assert answer.choices[0].message.content


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


def check_errors(servers):
    api = client(servers.url)
    ask = lambda **more: api.chat.completions.create(**{"model": "redraft-tiny", "messages": QUESTION, **more})
    assert refused(openai.BadRequestError, lambda: ask(temperature=-1)).param == "temperature"
    error = refused(openai.BadRequestError, lambda: ask(extra_body={"unheard_of": 1}))
    assert error.param == "unheard_of" and error.type == "invalid_request_error"
    error = refused(openai.NotFoundError, lambda: ask(model="another"))
    assert error.code == "model_not_found"
    error = refused(openai.BadRequestError, lambda: ask(max_tokens=10**9))
    assert error.code == "context_length_exceeded" and error.param == "max_tokens"
    assert refused(openai.NotFoundError, lambda: api.embeddings.create(model="x", input="y")).status_code == 404


def check_keys(servers):
    ask = lambda key: client(servers.locked, key).chat.completions.create(model="redraft-tiny", messages=QUESTION)
    assert refused(openai.AuthenticationError, lambda: ask("another")).code == "invalid_api_key"
    assert ask(servers.key).choices[0].message.content


def check_cancellation(servers):
    api = client(servers.url)
    stream = api.chat.completions.create(model="redraft-tiny", messages=QUESTION, stream=True, max_tokens=200,
                                         stream_options={"include_drafts": True}, extra_body=ENDLESS)
    next(iter(stream))
    stream.close()
    servers.is_idle()


def check_timeouts(servers):
    api = client(servers.url, timeout=0.5)
    refused(openai.APITimeoutError, lambda: api.chat.completions.create(
        model="redraft-tiny", messages=QUESTION, max_tokens=200, extra_body=ENDLESS))
    servers.is_idle()


def check_retries(servers):
    ask = lambda **more: client(servers.single, **more).chat.completions.create(model="redraft-tiny", messages=QUESTION)
    with servers.taken():
        error = refused(openai.RateLimitError, ask)
        assert error.code == "queue_full" and error.response.headers["retry-after"] == "1"
    with servers.taken_for(1.5):
        assert ask(max_retries=10).choices[0].message.content

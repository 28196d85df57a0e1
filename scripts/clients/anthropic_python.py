"""The Python package `anthropic`, where the server has `/v1/messages`."""

import anthropic
from anthropic import Anthropic

PATH = "/v1/messages"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS = {"diffusion": {"steps": 4096, "confidence": 0}}


def client(url, key="none", **more):
    return Anthropic(base_url=url, api_key=key, **{"max_retries": 0, **more})


def ask(api, **more):
    return api.messages.create(**{"model": "redraft-tiny", "max_tokens": 40, "messages": QUESTION, **more})


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


def check_messages(servers):
    answer = ask(client(servers.url), system="Be brief.")
    assert answer.type == "message" and answer.role == "assistant" and answer.stop_reason == "end_turn"
    assert [block.type for block in answer.content] == ["text"] and answer.content[0].text
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0


def check_length(servers):
    answer = ask(client(servers.url), max_tokens=2)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 2


def check_stream(servers):
    api = client(servers.url)
    whole = ask(api).content[0].text
    with api.messages.stream(model="redraft-tiny", max_tokens=40, messages=QUESTION) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole == final.content[0].text and final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 0


def check_conversation(servers):
    messages = QUESTION + [{"role": "assistant", "content": [{"type": "text", "text": "Paris."}]},
                           {"role": "user", "content": [{"type": "text", "text": "And of Italy?"}]}]
    assert ask(client(servers.url), messages=messages).content[0].text


def check_tools(servers):
    """A model whose template knows no tools says so; one that does answers."""
    tool = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    try:
        answer = ask(client(servers.url), tools=[tool])
        assert answer.stop_reason in ("end_turn", "max_tokens", "tool_use")
    except anthropic.BadRequestError as error:
        assert "tools" in str(error), error


def check_errors(servers):
    api = client(servers.url)
    error = refused(anthropic.BadRequestError, lambda: ask(api, extra_body={"temperature": -1}))
    assert error.body["type"] == "error" and error.body["error"]["type"] == "invalid_request_error"
    assert "temperature" in error.body["error"]["message"]
    refused(anthropic.NotFoundError, lambda: ask(api, model="another"))
    refused(anthropic.BadRequestError, lambda: ask(api, extra_body={"unheard_of": 1}))


def check_keys(servers):
    refused(anthropic.AuthenticationError, lambda: ask(client(servers.locked, "another")))
    assert ask(client(servers.locked, servers.key)).content[0].text


def check_cancellation(servers):
    stream = ask(client(servers.url), stream=True, max_tokens=200, extra_body=ENDLESS)
    next(iter(stream))
    stream.close()
    servers.is_idle()


def check_retries(servers):
    with servers.taken():
        refused(anthropic.RateLimitError, lambda: ask(client(servers.single)))
    with servers.taken_for(1.5):
        assert ask(client(servers.single, max_retries=10)).content[0].text

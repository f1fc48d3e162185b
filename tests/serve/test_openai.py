"""The OpenAI API, spoken by the real ``openai`` client: over the socket and over loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from kvg.errors import UsageError
from kvg.serve.openai import parse_asked
from tests.sessions import Home

MESSAGES = [{"role": "user", "content": "What is it?"}]
REF = {"kvg_ref": "one"}


def transport(path: Path) -> object:
    """A transport of whatever HTTP library the client is built on, over a UNIX socket."""
    import importlib

    base = openai.DefaultHttpxClient.__mro__[1].__module__.split(".")[0]
    return importlib.import_module(base).HTTPTransport(uds=str(path))


@pytest.fixture(params=["socket", "loopback"])
def client(desk: Home, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    if request.param == "socket":
        http = openai.DefaultHttpxClient(transport=transport(desk.place("desk").socket))
        made = openai.OpenAI(
            base_url="http://kvg/v1", api_key="none", http_client=http, max_retries=0
        )
    else:
        state = desk.state("desk")
        token = Path(state["token_file"]).read_text().strip()
        made = openai.OpenAI(base_url=state["tcp"], api_key=token, max_retries=0)
    with made:
        yield made


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "kvg"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nosuch")


def test_a_completion_is_a_graft(desk: Home, client: openai.OpenAI) -> None:
    found = client.completions.create(
        model="tiny", prompt=" so", max_tokens=12, temperature=0, extra_body=REF
    )
    alone = desk.kvg("graft", "one", "--prompt", " so", "--max-tokens", "12", "--json").records[0]
    assert found.choices[0].text == alone["text"]
    assert found.choices[0].finish_reason == alone["finish"]
    graft = found.model_extra["kvg"][0]  # type: ignore[index]
    assert graft["exact"] is True and graft["digest"] == alone["digest"]
    assert graft["logits_digest"] == alone["logits_digest"]
    assert found.usage is not None
    assert found.usage.completion_tokens == alone["new_tokens"]
    assert found.usage.prompt_tokens == alone["saved_tokens"] + 1 + alone["prompt_tokens"]
    assert (
        found.usage.model_dump()["prompt_tokens_details"]["cached_tokens"]
        == (alone["saved_tokens"])
    )


def test_a_chat_is_an_ask(desk: Home, client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=12, extra_body=REF
    )
    alone = desk.kvg("ask", "one", "What is it?", "--max-tokens", "12", "--json").records[0]
    assert found.choices[0].message.content == alone["text"]
    assert found.choices[0].message.role == "assistant"
    assert found.model_extra["kvg"][0]["logits_digest"] == alone["logits_digest"]  # type: ignore[index]
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}]}]
    again = client.chat.completions.create(
        model="tiny",
        messages=parts,  # type: ignore[arg-type]
        max_tokens=12,
        extra_body=REF,
    )
    assert again.choices[0].message.content == alone["text"]


def test_streams_add_up(desk: Home, client: openai.OpenAI) -> None:
    alone = desk.kvg("ask", "one", "What is it?", "--max-tokens", "12", "--json").records[0]
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=REF,
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == alone["text"]
    assert chunks[-2].choices[0].finish_reason == alone["finish"]
    assert chunks[-2].model_extra["kvg"][0]["exact"] is True  # type: ignore[index]
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1

    alone = desk.kvg("graft", "one", "--prompt", " so", "--max-tokens", "9", "--json").records[0]
    pieces = list(
        client.completions.create(
            model="tiny", prompt=" so", max_tokens=9, stream=True, extra_body=REF
        )
    )
    assert "".join(piece.choices[0].text for piece in pieces) == alone["text"]
    assert pieces[-1].choices[0].finish_reason == alone["finish"]


def test_several_prompts_stop_texts_and_seeds(desk: Home, client: openai.OpenAI) -> None:
    words = ("--temperature", "0.9", "--seed", "5", "--stop", "e", "--max-tokens", "20", "--json")
    alone = [
        desk.kvg("graft", "one", "--prompt", prompt, *words).records[0]["text"]
        for prompt in (" so", " and")
    ]
    given = {"temperature": 0.9, "seed": 5, "stop": ["e"], "max_tokens": 20}
    found = client.completions.create(
        model="tiny",
        prompt=[" so", " and"],
        extra_body=REF,
        **given,  # type: ignore[call-overload]
    )
    assert [choice.text for choice in found.choices] == alone
    assert [choice.index for choice in found.choices] == [0, 1]
    pieces = client.completions.create(
        model="tiny",
        prompt=[" so", " and"],
        stream=True,
        extra_body=REF,
        **given,  # type: ignore[call-overload]
    )
    streamed = ["", ""]
    for piece in pieces:
        streamed[piece.choices[0].index] += piece.choices[0].text
    assert streamed == alone


def test_without_a_ref_it_is_computed_fresh(desk: Home, client: openai.OpenAI) -> None:
    found = client.completions.create(model="tiny", prompt="The text", max_tokens=1)
    own = desk.kvg("logits", "--model", "tiny", "--prompt", "The text", "--json").records[0]
    graft = found.model_extra["kvg"][0]  # type: ignore[index]
    assert (graft["status"], graft["exact"]) == ("CACHE_MISS", False)
    assert graft["logits_digest"] == own["digest"]
    chat = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=3)
    assert chat.usage is not None
    assert chat.usage.model_dump()["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_the_clients_own_classes(client: openai.OpenAI, stream: bool) -> None:
    def ask(**more: object) -> None:
        given = {"model": "tiny", "prompt": " so", "stream": stream, "extra_body": REF, **more}
        list(client.completions.create(**given))  # type: ignore[call-overload]

    with pytest.raises(openai.NotFoundError, match="nosuch: no such ref"):
        ask(extra_body={"kvg_ref": "nosuch"})
    with pytest.raises(openai.NotFoundError, match="this session holds tiny"):
        ask(model="gpt-4")
    with pytest.raises(openai.UnprocessableEntityError, match="window"):
        ask(prompt=" so" * 3000)
    with pytest.raises(openai.BadRequestError, match="logit_bias: not supported"):
        ask(logit_bias={"1": 3})
    with pytest.raises(openai.BadRequestError, match="no parameter"):
        ask(extra_body={"kvg_reference": "one"})
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        ask(max_tokens=-1)


def test_a_client_that_stops_reading_is_noticed(desk: Home, client: openai.OpenAI) -> None:
    before = desk.log("desk").count("cancelled")
    stream = client.completions.create(
        model="tiny", prompt=" so", max_tokens=1600, stream=True, extra_body=REF
    )
    next(iter(stream))
    stream.close()
    desk.wait("desk", "cancelled") if before == 0 else None
    import time

    end = time.monotonic() + 20
    while desk.log("desk").count("cancelled") == before:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_forged_token_is_refused(desk: Home) -> None:
    state = desk.state("desk")
    with (
        openai.OpenAI(base_url=state["tcp"], api_key="forged", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": 3},
        {"prompt": []},
        {"prompt": [1, 2]},
        {"max_tokens": "3"},
        {"max_tokens": True},
        {"temperature": -1},
        {"top_p": 0},
        {"seed": 1.5},
        {"stop": 3},
        {"stop": [""]},
        {"n": 2},
        {"echo": True},
        {"stream": 1},
        {"n": True},
        {"logprobs": True},
        {"stop": {}},
        {"stop": 0},
        {"stream_options": {"x": 1}},
        {"stream": True, "stream_options": {"x": 1}},
        {"stream": True, "stream_options": {"include_usage": "yes"}},
        {"stream_options": {"include_usage": True}},
        {"kvg_ref": ["one"]},
        {"messages": []},
    ],
    ids=json.dumps,
)
def test_parameters_that_do_not_fit(body: dict) -> None:
    with pytest.raises(UsageError):
        parse_asked({"model": "tiny", **body}, is_chat=False)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "x",
        [{"role": "user"}],
        [{"role": 3, "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        ["x"],
        [{"role": "user", "content": "x", "name": "bob"}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
    ],
    ids=json.dumps,
)
def test_messages_that_do_not_fit(messages: object) -> None:
    with pytest.raises(UsageError):
        parse_asked({"model": "tiny", "messages": messages}, is_chat=True)


def test_an_answers_own_message_goes_back_as_it_came() -> None:
    said = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None}
    asked = parse_asked({"model": "tiny", "messages": [{**said, "annotations": []}]}, is_chat=True)
    assert asked.request.messages == ({"role": "assistant", "content": "x"},)


def test_a_refusal_names_the_parameter_of_the_api() -> None:
    with pytest.raises(UsageError, match=r"^max_tokens -1: "):
        parse_asked({"model": "tiny", "prompt": "x", "max_tokens": -1}, is_chat=False)

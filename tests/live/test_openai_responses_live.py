"""openai_responses against a real float32 vLLM: equal to the chat wire, streamed and plain alike, prefill, schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import jsonschema
import msgspec
import pytest

from dialects.compare import difference, same_reply
from logproof import Model
from logproof.errors import (
    BadReply,
    ContextOverflow,
    MissingChannel,
    ModelNotFound,
    OutputContractError,
    RequestRefused,
)
from logproof.ir.message import Message, TextPart, ToolCallPart, ToolResultPart, text_message
from logproof.ir.request import (
    Function,
    Input,
    Output,
    Replay,
    Request,
    Sampling,
    Schedule,
    Scoring,
    Session,
    Tools,
)
from logproof.ir.response import Choice, Response
from logproof.ir.turn import to_message

pytestmark = pytest.mark.live

GREEDY = Sampling(max_tokens=12, temperature=0.0)
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FRANCE = "What is the capital of France?"


@pytest.fixture(scope="module")
def responses(engine_url: str) -> Iterator[Model]:
    with Model(engine_url, dialect="openai_responses") as opened:
        yield opened


@pytest.fixture(scope="module")
def chat(engine_url: str, responses: Model) -> Iterator[Model]:
    with Model(engine_url, dialect="openai_chat", facts=responses.facts) as opened:
        yield opened


def ask(*messages: Message | str, **groups: msgspec.Struct) -> Request:
    given = tuple(text_message("user", m) if isinstance(m, str) else m for m in messages)
    return msgspec.structs.replace(Request("smollm2", Input(messages=given), sampling=GREEDY), **groups)


def only(model: Model, request: Request) -> Choice:
    (choice,) = model.call(request).response.choices
    return choice


def shared(response: Response) -> Any:
    """The reply less the ids inside the items that go back."""
    found = same_reply(response)
    for choice in found["choices"]:
        for part in choice["turn"]:
            part["opaque"]["blob"].pop("id", None)
    return found


STREAMED = {
    "english": ask(FRANCE),
    "chinese": ask("请重复:你好,世界"),
    "emoji": ask("Repeat: 🦊🦊🦊🦊"),
    "system": ask(text_message("system", "Answer in one word."), FRANCE),
    "stop": ask(FRANCE, sampling=Sampling(max_tokens=16, temperature=0.0, stop=("France",))),
    "seeded": ask(FRANCE, sampling=Sampling(max_tokens=8, temperature=1.0, seed=3, top_k=40)),
    "schema": ask(
        "A person as JSON.", output=Output(json_schema=SCHEMA), sampling=Sampling(max_tokens=60, temperature=0.0)
    ),
}


@pytest.mark.parametrize("name", STREAMED)
def test_streamed_and_plain_are_one_reply(responses: Model, name: str) -> None:
    plain = responses.call(STREAMED[name]).response
    stream = msgspec.structs.replace(STREAMED[name], schedule=Schedule(stream=True))
    assert difference(shared(responses.call(stream).response), shared(plain), 1e-3) is None
    assert plain.choices[0].token_ids is not None
    assert plain.usage.completion == len(plain.choices[0].token_ids)


@pytest.mark.parametrize("name", ["english", "system", "stop", "schema"])
def test_it_scores_what_the_chat_wire_scores(responses: Model, chat: Model, name: str) -> None:
    request = msgspec.structs.replace(STREAMED[name], scoring=Scoring(sampled=3, top_by="text"))
    mine, theirs = responses.call(request).response, chat.call(request).response
    assert mine.prompt_ids is not None
    assert theirs.prompt_ids is not None
    assert mine.prompt_ids.tolist() == theirs.prompt_ids.tolist()
    left, right = shared(mine)["choices"][0], same_reply(theirs)["choices"][0]
    for field in ("text", "tokens", "token_ids", "parsed"):
        assert difference(left[field], right[field], 1e-3) is None


def test_a_scored_stream_is_asked_plain(responses: Model) -> None:
    """vLLM's stream leaves out the logprob of the end token, for one."""
    call = responses.call(ask(FRANCE, scoring=Scoring(sampled=0), schedule=Schedule(stream=True)))
    tokens = call.response.choices[0].tokens
    assert tokens is not None
    assert len(tokens) == call.response.usage.completion
    assert call.reply.events is None


def test_texts_that_collapse_are_refused(responses: Model) -> None:
    with pytest.raises(BadReply, match="two entries for"):
        responses.call(ask("Repeat: 🦊🦊🦊🦊", scoring=Scoring(sampled=5)))


def test_sampled_scores_alone_survive_cut_characters(responses: Model) -> None:
    choice = only(responses, ask("Repeat: 🦊🦊🦊🦊", scoring=Scoring(sampled=0)))
    assert choice.tokens is not None
    assert choice.tokens.ids is not None
    assert "🦊" in choice.text


def test_prefill_gives_the_continuation(responses: Model, chat: Model) -> None:
    request = ask(FRANCE, text_message("assistant", "The capital is"))
    assert only(responses, request).text == only(chat, request).text
    assert only(responses, request).text.startswith(" Paris")


def test_a_lifted_turn_goes_back(responses: Model, chat: Model) -> None:
    first = only(responses, ask(FRANCE))
    again = ask(FRANCE, to_message(first), "And Spain?")
    bare = ask(FRANCE, Message("assistant", (TextPart(first.text),)), "And Spain?")
    assert only(responses, again).text == only(chat, bare).text


def test_tool_results_in_the_history_pass(responses: Model) -> None:
    call = Message("assistant", (ToolCallPart("c1", "get_weather", '{"city":"Paris"}'),))
    assert only(responses, ask("Weather?", call, Message("tool", (ToolResultPart("c1", "sunny"),)))).text


def test_a_call_that_the_server_does_not_force_is_refused(responses: Model) -> None:
    """Without a tool parser this route answers 200 with plain text."""
    tools = Tools(functions=(Function("f", "d", {"type": "object"}),), choice="required")
    with pytest.raises(MissingChannel, match="required and did not come"):
        responses.call(ask("Say hi.", tools=tools, sampling=Sampling(max_tokens=60, temperature=0.0)))


@pytest.mark.parametrize("output", [Output(choice=("four", "five")), Output(regex="[0-9]{2}")])
def test_structured_texts(responses: Model, output: Output) -> None:
    choice = only(responses, ask("What is 2+2?", output=output))
    assert choice.parsed == choice.text


def test_a_cut_schema_is_off_its_contract(responses: Model) -> None:
    with pytest.raises(OutputContractError, match="truncated at max_tokens"):
        responses.call(ask("A person as JSON", output=Output(json_schema=SCHEMA), sampling=Sampling(max_tokens=4)))


def test_errors_have_their_types(responses: Model) -> None:
    with pytest.raises(ContextOverflow):
        responses.call(ask("word " * 3000))
    with pytest.raises(ModelNotFound):
        responses.call(msgspec.structs.replace(ask("Hi"), model="nobody"))
    for group in (Session(store=True), Session(previous_response_id="resp_1")):
        with pytest.raises(RequestRefused, match="in silence"):
            responses.call(ask("Hi", session=group))
    with pytest.raises(RequestRefused, match="vllm_native or openai_chat"):
        responses.call(ask("Hi", replay=Replay(token_ids=(1,))))


def test_bodies_fit_the_server_s_own_document(responses: Model, engine_url: str) -> None:
    """Each body validates against the schema that the server publishes, and holds no key that it does not list."""
    with urlopen(f"{engine_url}/openapi.json") as reply:
        components = json.load(reply)["components"]
    known = set(components["schemas"]["ResponsesRequest"]["properties"])
    for request in STREAMED.values():
        body = json.loads(responses.call(request).wire.body)
        assert set(body) <= known
        jsonschema.validate(body, {"$ref": "#/components/schemas/ResponsesRequest", "components": components})

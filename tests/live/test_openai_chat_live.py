"""openai_chat against a real float32 vLLM: plain and streamed alike, a certain top-k by id, prefill, structure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import urlopen

import jsonschema
import msgspec
import numpy as np
import pytest

from dialects.compare import difference, same_reply
from logproof import Model
from logproof.errors import ContextOverflow, ModelNotFound, OutputContractError, RequestRefused, StatusError
from logproof.ir.message import ImagePart, Message, TextPart, ToolCallPart, ToolResultPart, text_message
from logproof.ir.request import Function, Input, Output, Request, Sampling, Schedule, Scoring, Tools
from logproof.ir.response import Choice, Response, Tokens
from logproof.ir.turn import to_message

pytestmark = pytest.mark.live

PROMPTS = {
    "english": "What is the capital of France?",
    "chinese": "请重复:你好,世界",
    "emoji": "Repeat: 🦊🦊🦊🦊",
    "code": "Write a python function that adds two numbers.",
}
GREEDY = Sampling(max_tokens=16, temperature=0.0)
PERSON: dict[str, object] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def chat(engine_url: str) -> Iterator[Model]:
    with Model(engine_url, dialect="openai_chat") as opened:
        yield opened


@pytest.fixture(scope="module")
def native(engine_url: str, chat: Model) -> Iterator[Model]:
    with Model(engine_url, dialect="vllm_native", facts=chat.facts) as opened:
        yield opened


def ask(text: str | Message, *more: Message, **groups: msgspec.Struct) -> Request:
    first = text_message("user", text) if isinstance(text, str) else text
    return msgspec.structs.replace(Request("smollm2", Input(messages=(first, *more)), sampling=GREEDY), **groups)


def only(model: Model, request: Request) -> Choice:
    (choice,) = model.call(request).response.choices
    return choice


def whole(tokens: Tokens | None) -> Tokens:
    assert tokens is not None
    return tokens


def check_alike(model: Model, request: Request) -> Response:
    """The reply, after checking that its streamed form is the same; values may differ by the noise of a busy engine."""
    plain = model.call(request).response
    stream = msgspec.structs.replace(request, schedule=Schedule(stream=True))
    assert difference(same_reply(model.call(stream).response), same_reply(plain), 1e-3) is None
    return plain


REQUESTS = {
    **{f"top_{name}": ask(text, scoring=Scoring(sampled=5)) for name, text in PROMPTS.items()},
    "plain": ask(PROMPTS["english"]),
    "hot": ask(PROMPTS["emoji"], sampling=Sampling(max_tokens=12, temperature=1.8, seed=4), scoring=Scoring(sampled=3)),
    "n": ask(
        PROMPTS["english"], sampling=Sampling(max_tokens=6, temperature=1.0, seed=4, n=3), scoring=Scoring(sampled=0)
    ),
    "stop": ask(
        PROMPTS["english"],
        sampling=Sampling(max_tokens=16, temperature=0.0, stop=("France",)),
        scoring=Scoring(sampled=1),
    ),
    "schema": ask(
        "Give me a person as JSON.",
        sampling=Sampling(max_tokens=60, temperature=0.0),
        output=Output(json_schema=PERSON),
        scoring=Scoring(sampled=2),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_streamed_and_plain_are_one_reply(chat: Model, name: str) -> None:
    plain = check_alike(chat, REQUESTS[name])
    assert plain.usage.completion == sum(len(c.token_ids if c.token_ids is not None else ()) for c in plain.choices)


@pytest.mark.parametrize("name", PROMPTS)
def test_the_top_k_is_that_of_the_native_wire(chat: Model, native: Model, name: str) -> None:
    """The same templated prompt sent as ids to the other route gives the same ids, values and rivals."""
    response = chat.call(REQUESTS[f"top_{name}"]).response
    assert response.prompt_ids is not None
    prompt = Input(token_ids=tuple(response.prompt_ids.tolist()))
    other = native.call(Request("smollm2", prompt, sampling=GREEDY, scoring=Scoring(sampled=5))).response
    mine, theirs = whole(response.choices[0].tokens), whole(other.choices[0].tokens)
    assert mine.ids is not None
    assert theirs.ids is not None
    assert mine.top is not None
    assert theirs.top is not None
    assert mine.ids.tolist() == theirs.ids.tolist()
    for i in range(len(mine)):
        left, right = mine.top.by_id(i), theirs.top.by_id(i)
        assert left.keys() == right.keys()
        assert max(abs(left[t] - right[t]) for t in left) < 1e-4


def test_a_top_k_beside_an_unlikely_token_is_whole(chat: Model) -> None:
    tokens = whole(only(chat, REQUESTS["hot"]).tokens)
    assert tokens.top is not None
    sizes = np.diff(tokens.top.offsets)
    assert set(sizes.tolist()) <= {3, 4}
    assert 4 in sizes


def test_the_texts_of_tokens_join_to_the_text(chat: Model) -> None:
    for name in PROMPTS:
        choice = only(chat, REQUESTS[f"top_{name}"])
        texts = whole(choice.tokens).texts
        assert texts is not None
        assert "".join(t or "" for t in texts).startswith(choice.text)


@pytest.mark.parametrize("name", PROMPTS)
def test_a_chat_prompt_is_scored_as_its_ids_are(chat: Model, native: Model, name: str) -> None:
    response = chat.call(ask(PROMPTS[name], scoring=Scoring(prompt=2), sampling=Sampling(max_tokens=1))).response
    assert response.prompt_ids is not None
    prompt = Input(token_ids=tuple(response.prompt_ids.tolist()))
    other = native.call(Request("smollm2", prompt, sampling=Sampling(max_tokens=1), scoring=Scoring(prompt=2))).response
    assert np.array_equal(whole(response.prompt).logprobs, whole(other.prompt).logprobs, equal_nan=True)


def test_a_streamed_chat_gives_the_same_label_scores(chat: Model) -> None:
    check_alike(chat, ask(PROMPTS["english"], scoring=Scoring(label_ids=(260, 504))))


def test_label_scores_are_the_values_of_the_top_list(chat: Model) -> None:
    tokens = whole(only(chat, REQUESTS["top_english"]).tokens)
    assert tokens.top is not None
    best = tokens.top.by_id(0)
    labels = only(chat, ask(PROMPTS["english"], scoring=Scoring(label_ids=tuple(best)))).labels
    assert labels is not None
    assert max(abs(v - best[t]) for t, v in zip(labels.ids.tolist(), labels.logprobs[0].tolist(), strict=True)) < 1e-4


def test_prefill_gives_the_continuation(chat: Model) -> None:
    request = ask(PROMPTS["english"], text_message("assistant", "The capital is"), scoring=Scoring(sampled=0))
    assert check_alike(chat, request).text.startswith(" Paris")


def test_a_turn_goes_back(chat: Model) -> None:
    first = only(chat, ask(PROMPTS["english"]))
    again = only(chat, ask(PROMPTS["english"], to_message(first), text_message("user", "And Spain?")))
    assert again.text


def test_tool_results_in_the_history_pass(chat: Model) -> None:
    call = Message("assistant", (ToolCallPart("c1", "get_weather", '{"city":"Paris"}'),))
    assert only(chat, ask("Weather?", call, Message("tool", (ToolResultPart("c1", "sunny"),)))).text


@pytest.mark.parametrize("choice", ["auto", "required", "function:f"])
def test_tools_without_a_parser_are_the_server_s_400(chat: Model, choice: str) -> None:
    tools = Tools(functions=(Function("f", "d", {"type": "object"}),), choice=choice)
    with pytest.raises(StatusError, match="HTTP 400"):
        chat.call(ask("Hi", tools=tools))


@pytest.mark.parametrize(
    "output",
    [Output(choice=("four", "five")), Output(regex="[0-9]{2}"), Output(grammar='root ::= "yes" | "no"')],
)
def test_structured_texts(chat: Model, output: Output) -> None:
    choice = only(chat, ask("What is 2+2?", output=output))
    assert choice.parsed == choice.text


def test_a_schema_is_held(chat: Model) -> None:
    parsed = only(chat, REQUESTS["schema"]).parsed
    assert isinstance(parsed, dict)
    assert parsed.keys() == {"name", "age"}
    tokens = whole(only(chat, REQUESTS["schema"]).tokens)
    assert tokens.meaning == "constrained"


def test_a_cut_schema_is_off_its_contract(chat: Model) -> None:
    with pytest.raises(OutputContractError, match="truncated at max_tokens"):
        chat.call(ask("A person as JSON", output=Output(json_schema=PERSON), sampling=Sampling(max_tokens=4)))


def test_errors_have_their_types(chat: Model) -> None:
    with pytest.raises(ContextOverflow):
        chat.call(ask("word " * 3000))
    with pytest.raises(ModelNotFound):
        chat.call(msgspec.structs.replace(ask("Hi"), model="nobody"))
    with pytest.raises(StatusError):
        chat.call(ask(Message("user", (TextPart("See"), ImagePart(data="aGk=", media_type="image/png")))))
    with pytest.raises(RequestRefused, match="takes 101"):
        chat.call(ask("Hi", scoring=Scoring(sampled=100)))


def test_bodies_fit_the_server_s_own_document(chat: Model, engine_url: str) -> None:
    """Each body validates against the schema that the server publishes, and holds no key that it does not list."""
    with urlopen(f"{engine_url}/openapi.json") as reply:
        components = json.load(reply)["components"]
    known = set(components["schemas"]["ChatCompletionRequest"]["properties"])
    for request in REQUESTS.values():
        body = json.loads(chat.call(request).wire.body)
        assert set(body) <= known
        jsonschema.validate(body, {"$ref": "#/components/schemas/ChatCompletionRequest", "components": components})

"""Templates: what may be filled in, and what must be lowered in full."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.client import client as clients
from logproof.client.client import Client
from logproof.client.prompt_templates import MOST, Templates
from logproof.dialects.lower import Lowered, lower
from logproof.dialects.registry import get_dialect
from logproof.errors import InvalidRequest, LogproofError
from logproof.http.exchange import WireReply, WireRequest
from logproof.ir.facts import Facts
from logproof.ir.message import Message, TextPart
from logproof.ir.request import Input, Output, Request, Sampling, Scoring, Tools

DIALECT = get_dialect("vllm_native")
FACTS = Facts(vocab_size=100)
FIRST = Request("m", Input(text="first"), Sampling(max_tokens=1, temperature=0.0), Scoring(prompt=0))
IDS = msgspec.structs.replace(FIRST, input=Input(token_ids=(1, 2)))


def ready(*requests: Request) -> Templates:
    templates = Templates(FACTS)
    for request in requests:
        templates.keep(request, lower(request, DIALECT, FACTS))
    return templates


def request_with(**changes: Any) -> Request:
    return msgspec.structs.replace(FIRST, **changes)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_text_is_filled_in_as_it_would_be_lowered(text: str) -> None:
    request = request_with(input=Input(text=text))
    assert ready(FIRST).fill(request) == lower(request, DIALECT, FACTS)


@given(st.lists(st.integers(0, 99), min_size=1).map(tuple))
def test_ids_are_filled_in_as_they_would_be_lowered(ids: tuple[int, ...]) -> None:
    request = request_with(input=Input(token_ids=ids))
    assert ready(IDS).fill(request) == lower(request, DIALECT, FACTS)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": Sampling(max_tokens=1, temperature=0)},
        {"sampling": Sampling(max_tokens=True, temperature=0.0)},
        {"sampling": Sampling(max_tokens=2, temperature=0.0)},
        {"sampling": Sampling(max_tokens=1, temperature=0.0, seed=2**70)},
        {"sampling": Sampling(max_tokens=1, temperature=0.0, stop=(object(),))},  # type: ignore[arg-type]
        {"scoring": Scoring(prompt=1)},
        {"model": "other"},
        {"options": {"min_p": 0.1}},
        {"output": Output(json_schema={})},
        {"tools": Tools(functions=())},
        {"tools": Tools(hosted=())},
        {"input": Input(text="")},
        {"input": Input(text=7)},  # type: ignore[arg-type]
        {"input": Input(text="a", suffix="b")},
        {"input": Input(text="a", token_ids=(1,))},
        {"input": Input(messages=(Message("user", (TextPart("a"),)),))},
        {"input": Input()},
    ],
)
def test_another_question_is_lowered_in_full(changes: dict[str, Any]) -> None:
    assert ready(FIRST, IDS).fill(request_with(**changes)) is None


@pytest.mark.parametrize("ids", [(), (100,), (-1,), (True,), (1.0,), ("1",)])
def test_ids_that_are_not_plain_are_lowered_in_full(ids: Any) -> None:
    assert ready(IDS).fill(request_with(input=Input(token_ids=ids))) is None


def test_no_template_of_a_request_that_is_not_plain() -> None:
    plain = lower(FIRST, DIALECT, FACTS)
    templates = Templates(FACTS)
    for request in (request_with(options={"min_p": 0.1}), request_with(input=Input(text=""))):
        templates.keep(request, plain)
    templates.keep(request_with(input=Input(text="not what the body holds")), plain)
    assert templates.fill(FIRST) is None


def test_kinds_are_bounded() -> None:
    templates = ready(FIRST)
    for n in range(2, MOST + 2):
        request = request_with(sampling=Sampling(max_tokens=n))
        templates.keep(request, lower(request, DIALECT, FACTS))
    assert templates.fill(FIRST) is None
    assert templates.fill(request_with(sampling=Sampling(max_tokens=MOST + 1))) is not None


class Deaf:
    """A sender that keeps what it is given and answers nothing."""

    def __init__(self) -> None:
        self.got: list[WireRequest] = []

    async def send(self, request: WireRequest) -> WireReply:
        self.got.append(request)
        raise LogproofError("no answer")


def test_a_client_lowers_a_question_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[Request] = []

    def counted(request: Request, *rest: Any) -> Lowered:
        lowered.append(request)
        return lower(request, *rest)

    monkeypatch.setattr(clients, "lower", counted)
    sender = Deaf()
    client = Client(sender, DIALECT, FACTS)
    for text in ("first", "second", "third"):
        with pytest.raises(LogproofError, match="no answer"):
            asyncio.run(client.call(request_with(input=Input(text=text))))
    assert lowered == [FIRST]
    assert [msgspec.json.decode(w.body)["prompt"] for w in sender.got] == ["first", "second", "third"]
    with pytest.raises(InvalidRequest, match="nothing to condition on"):
        asyncio.run(client.call(request_with(input=Input(text=""))))

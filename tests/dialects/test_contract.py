"""The contract of dialects/contract.py, for every dialect that is built in or registered."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from dialects import contract, toy
from dialects.wires import REPLIES, events_of
from logproof.dialects.registry import BUILT_IN, dialect_ids, get_dialect
from logproof.dialects.sample_requests import MESSAGES, SAMPLES
from logproof.errors import InvalidRequest, RequestRefused, UsageError
from logproof.http.exchange import WireReply
from logproof.ir.facts import Facts
from logproof.ir.leaves import leaf_paths

SAID = WireReply(200, (), b'{"said": "Good day to you."}')
"""A reply of the toy."""


@pytest.mark.parametrize("dialect_id", dialect_ids())
def test_a_dialect_names_its_id_channels_and_path(dialect_id: str) -> None:
    contract.check_shape(get_dialect(dialect_id))


@pytest.mark.parametrize("leaf", contract.leaves())
@pytest.mark.parametrize("dialect_id", dialect_ids())
def test_every_leaf_is_decided(dialect_id: str, leaf: str) -> None:
    for facts in contract.ENDPOINTS.values():
        for value in contract.samples(leaf):
            contract.check_leaf(get_dialect(dialect_id), facts, leaf, value)


@pytest.mark.parametrize("dialect_id", dialect_ids())
def test_an_unknown_option_is_refused(dialect_id: str) -> None:
    dialect = get_dialect(dialect_id)
    request = contract.request_with(dialect, Facts(), "sampling.max_tokens", 4)
    for name in ("frobnicate", "a/b~c"):
        odd = type(request)(**{**{f: getattr(request, f) for f in request.__struct_fields__}, "options": {name: 1}})
        with pytest.raises(RequestRefused, match="frobnicate|a/b~c"):
            contract.lower(odd, dialect, contract.ENDPOINTS["known"])


def recorded(folder: str) -> Iterator[WireReply]:
    """All recorded replies of a dialect, in either form of file."""
    for path in sorted((REPLIES / folder).glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        text = held.get("response_text", held.get("response"))
        if isinstance(text, str):
            yield WireReply(200, (), b"", events_of(text.encode()))
        else:
            yield WireReply(200, (), json.dumps(text, ensure_ascii=False).encode())


@pytest.mark.parametrize("dialect_id", BUILT_IN)
def test_recorded_replies_are_lifted_whole_or_refused(dialect_id: str) -> None:
    """Of every wire there are replies that lift, and whatever is asked of them is there or refused."""
    lifted = [contract.check_reply(get_dialect(dialect_id), reply) for reply in recorded(dialect_id)]
    assert sum(count > 0 for count in lifted) > 3


def test_the_samples_cover_every_leaf_and_nothing_else() -> None:
    features = {leaf.removeprefix("input.messages.") for leaf in leaf_paths() if leaf.startswith("input.messages.")}
    assert set(MESSAGES) == features
    assert set(SAMPLES) == {leaf for leaf in leaf_paths() if not leaf.startswith("input.messages.")}


def test_the_samples_show_the_feature_they_stand_for() -> None:
    for feature, messages in MESSAGES.items():
        assert feature in contract.active_leaves_of(messages)


def test_an_unknown_id_gives_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        get_dialect("vllm_nativ")
    assert caught.value.hint == "did you mean vllm_native?"
    with pytest.raises(UsageError) as caught:
        get_dialect("zzz")
    assert "known dialects" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (toy.Forgetful, "is undecided"),
        (toy.Stateful, "holds no state"),
        (toy.Smuggler, "nothing explains /extra"),
        (toy.Overwriter, "was overwritten"),
        (toy.Raiser, "boom"),
        (toy.Breaker, "truncated"),
        (toy.Hasty, "a reply cut at"),
        (toy.Fickle, "lifting twice"),
    ],
)
def test_the_contract_catches(fault: type[toy.Toy], message: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, ValueError), match=message):
        _whole_contract(fault())


def _whole_contract(dialect: Any) -> None:
    contract.check_shape(dialect)
    for leaf in contract.leaves():
        for value in contract.samples(leaf):
            contract.check_leaf(dialect, Facts(), leaf, value)
    contract.check_reply(dialect, SAID)


def test_an_invalid_request_needs_no_reason_of_the_dialect() -> None:
    contract.check_refusal(InvalidRequest("no"), contract.request_with(toy.Toy(), Facts(), "model", "m"))


def test_built_in_ids_are_module_names() -> None:
    for dialect_id, name in BUILT_IN.items():
        dialect = get_dialect(dialect_id)
        module: ModuleType = sys.modules[type(dialect).__module__]
        assert dialect_id in module.__name__.split(".")
        assert type(dialect).__name__ == name

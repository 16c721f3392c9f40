"""Damage to scored replies: each is refused, or what is lifted does not change."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logproof.errors import LogproofError
from models.dialects.sglang_cases import OWN, lift, own_body, plain

SCORED = ("score", "score_ids", "score_cjk", "labels_n2", "schema", "choice", "eos")
LISTS = (
    "input_token_logprobs",
    "input_top_logprobs",
    "output_token_logprobs",
    "output_top_logprobs",
    "output_token_ids_logprobs",
)
COUNTS = ("prompt_tokens", "completion_tokens", "output_token_logprobs_length", "num_retractions")

Reply = dict[str, object]
Draw = st.DataObject


def whole(name: str) -> object:
    return plain(lift(OWN[name], own_body(name)))


BASE = {name: whole(name) for name in SCORED}


def metas(reply: Reply | list[Reply]) -> list[Reply]:
    found = [r["meta_info"] for r in (reply if isinstance(reply, list) else [reply])]
    return [m for m in found if isinstance(m, dict)]


def asked_lists(name: str, meta: Reply) -> list[list[object]]:
    """The channels that the request asked for and that hold something."""
    scoring = OWN[name].scoring
    names = [
        *(["input_token_logprobs"] if scoring.prompt is not None else []),
        *(["input_top_logprobs"] if scoring.prompt else []),
        *(["output_token_logprobs"] if scoring.sampled is not None else []),
        *(["output_top_logprobs"] if scoring.sampled else []),
        *(["output_token_ids_logprobs"] if scoring.label_ids is not None else []),
    ]
    found = [meta[n] for n in names]
    return [v for v in found if isinstance(v, list) and v]


def drop(channel: list[object], draw: Draw) -> None:
    del channel[draw.draw(st.integers(0, len(channel) - 1))]


def repeat(channel: list[object], draw: Draw) -> None:
    at = draw.draw(st.integers(0, len(channel) - 1))
    channel.insert(at, copy.deepcopy(channel[at]))


def shift(channel: list[object], draw: Draw) -> None:
    channel.append(channel.pop(0))


def cut(channel: list[object], draw: Draw) -> None:
    del channel[draw.draw(st.integers(0, len(channel) - 1)) :]


def entries(channel: list[object]) -> list[list[object]]:
    """All [logprob, id, text] of a channel, nested or not."""
    found: list[list[object]] = []
    for item in channel:
        if isinstance(item, list) and item and isinstance(item[0], list):
            found += item
        elif isinstance(item, list) and item and item[0] is not None:
            found.append(item)
    return found


SPOILT: list[tuple[int, object]] = [
    *((0, value) for value in (-9999.0, None, "-0.5", 3.5, True)),
    *((1, value) for value in (-1, 2**31, "7", None)),
]


def spoil(channel: list[object], draw: Draw) -> None:
    """One value or id becomes what it cannot be."""
    entry = draw.draw(st.sampled_from(entries(channel) or [[0.0, 0, None]]))
    at, value = draw.draw(st.sampled_from(SPOILT))
    entry[at] = value


def flip_sign(channel: list[object], draw: Draw) -> None:
    found = [e for e in entries(channel) if isinstance(e[0], float) and e[0] < -1e-4]
    if found:
        entry = draw.draw(st.sampled_from(found))
        entry[0] = -float(str(entry[0]))


DAMAGES: list[Callable[[list[object], Draw], None]] = [drop, repeat, shift, cut, spoil, flip_sign]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_channels(damage: Callable[[list[object], Draw], None], data: Draw) -> None:
    name = data.draw(st.sampled_from(SCORED))
    reply = json.loads(own_body(name))
    channel = data.draw(st.sampled_from(asked_lists(name, data.draw(st.sampled_from(metas(reply))))))
    damage(channel, data)
    unchanged_or_refused(name, msgspec.json.encode(reply))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_swapped_positions(data: Draw) -> None:
    """Two positions of the scored tokens change places: ids say so, where the two tokens differ."""
    name = data.draw(st.sampled_from(SCORED))
    reply = json.loads(own_body(name))
    channel = data.draw(st.sampled_from(metas(reply)))
    scored = [channel[n] for n in ("input_token_logprobs", "output_token_logprobs")]
    lists = data.draw(st.sampled_from([v for v in scored if isinstance(v, list) and len(v) > 1]))
    one, other = (data.draw(st.integers(0, len(lists) - 1)) for _ in range(2))
    assume(one == other or lists[one][1] != lists[other][1])
    lists[one], lists[other] = lists[other], lists[one]
    unchanged_or_refused(name, msgspec.json.encode(reply), asked_only=True)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_changed_ids(data: Draw) -> None:
    """An id of a scored token or of the reported ids becomes another one."""
    name = data.draw(st.sampled_from(SCORED))
    reply = json.loads(own_body(name))
    body = data.draw(st.sampled_from(reply if isinstance(reply, list) else [reply]))
    ids = [body["output_ids"], body["prompt_token_ids"]]
    column = data.draw(st.sampled_from([i for i in ids if i]))
    column[data.draw(st.integers(0, len(column) - 1))] = data.draw(st.integers(0, 49151))
    unchanged_or_refused(name, msgspec.json.encode(reply), asked_only=True)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_changed_counts(data: Draw) -> None:
    name = data.draw(st.sampled_from(SCORED))
    reply = json.loads(own_body(name))
    meta = data.draw(st.sampled_from(metas(reply)))
    field = data.draw(st.sampled_from([c for c in COUNTS if c in meta]))
    meta[field] = data.draw(st.integers(-1, 40))
    unchanged_or_refused(name, msgspec.json.encode(reply), asked_only=True)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_cut_bytes(data: Draw) -> None:
    name = data.draw(st.sampled_from(SCORED))
    raw = own_body(name)
    unchanged_or_refused(name, raw[: data.draw(st.integers(0, len(raw) - 1))])


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"-1e999", b"1e999"])
def test_literals_that_are_no_json_numbers(literal: bytes) -> None:
    raw = own_body("score_ids")
    value = str(json.loads(raw)["meta_info"]["output_token_logprobs"][0][0]).encode()
    unchanged_or_refused("score_ids", raw.replace(value, literal))


def unchanged_or_refused(name: str, raw: bytes, *, asked_only: bool = False) -> None:
    """The damaged reply raises, or lifts to what the whole one gives.

    asked_only: what no asked channel and no count depends on, the ids of an unscored side, may differ.
    """
    try:
        found = plain(lift(OWN[name], raw))
    except LogproofError:
        return
    if asked_only and found != BASE[name]:
        assert numbers(found) == numbers(BASE[name])
        return
    assert found == BASE[name]


def numbers(response: object) -> list[object]:
    """Every scored channel of a response."""
    assert isinstance(response, dict)
    choices = response["choices"]
    return [response["prompt"], *[(c["tokens"], c["labels"]) for c in choices]]

"""Damage to scored chat replies: each is refused, or what is lifted does not change."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logproof.errors import LogproofError
from logproof.ir.facts import Facts
from logproof.models import channels
from models.chat_wires import request_of
from models.compare import same_reply
from models.dialects.chat_cases import DIALECT
from models.wires import load

SCORED = {
    "compat_logprobs_token_ids": {"sampled": 1},
    "vllm_lp_as_ids": {"sampled": 2},
    "vllm_lp5": {"sampled": 4},
    "vllm_lp5_ids": {"sampled": 4},
    "vllm_stop": {"sampled": 0},
    "vllm_forced_eos": {"sampled": 0},
    "vllm_so_choice_lp": {"sampled": 2},
    "vllm_prefill": {"sampled": 0},
    "sglang_logprobs": {"sampled": 1},
    "llamacpp_lp": {"sampled": 1},
}
"""Recording -> the widths that its lists are certain for."""


def lifted(name: str, reply: Any) -> Any:
    request = request_of(load("openai_chat", name).request, **SCORED[name])
    response = DIALECT.lift(request, json.dumps(reply).encode())
    channels.check(request, response, Facts())
    return same_reply(response)


REPLIES = {name: (reply, lifted(name, reply)) for name in SCORED for reply in [load("openai_chat", name).json()]}


def entries(reply: Any) -> list[Any]:
    found: list[Any] = reply["choices"][0]["logprobs"]["content"]
    return found


@pytest.mark.parametrize("name", SCORED)
@settings(max_examples=40)
@given(data=st.data())
def test_damage(name: str, data: st.DataObject) -> None:
    reply, whole = REPLIES[name]
    broken = copy.deepcopy(reply)
    data.draw(st.sampled_from(DAMAGES))(broken, data)
    try:
        found = lifted(name, broken)
    except LogproofError:
        return
    assert found == whole


def at(reply: Any, data: st.DataObject) -> int:
    return data.draw(st.integers(0, len(entries(reply)) - 1))


def drop(reply: Any, data: st.DataObject) -> None:
    del entries(reply)[at(reply, data)]


def repeat(reply: Any, data: st.DataObject) -> None:
    i = at(reply, data)
    entries(reply).insert(i, entries(reply)[i])


def swap(reply: Any, data: st.DataObject) -> None:
    i, j = at(reply, data), at(reply, data)
    found = entries(reply)
    if found[i]["token"] != found[j]["token"]:
        found[i], found[j] = found[j], found[i]


def shift(reply: Any, data: st.DataObject) -> None:
    if len(entries(reply)) > 1:
        entries(reply).append(entries(reply).pop(0))


def cut(reply: Any, data: st.DataObject) -> None:
    del entries(reply)[at(reply, data) :]


def other_token(reply: Any, data: st.DataObject) -> None:
    """Not the stop token: the text does not hold it, so that nothing else in a reply of texts names it."""
    i = at(reply, data)
    entry = entries(reply)[i]
    if i == len(entries(reply)) - 1 and reply["choices"][0]["finish_reason"] == "stop":
        return
    entry["token"] = "token_id:77" if entry["token"].startswith("token_id") else "~"
    entry["bytes"] = [126] if entry["bytes"] is not None else None


def other_id(reply: Any, data: st.DataObject) -> None:
    ids = reply["choices"][0].get("token_ids")
    if ids:
        data.draw(st.sampled_from((ids.pop, lambda: ids.append(5))))()


def count(reply: Any, data: st.DataObject) -> None:
    reply["usage"]["completion_tokens"] += data.draw(st.sampled_from((-1, 1, 7)))


def sign(reply: Any, data: st.DataObject) -> None:
    entry = entries(reply)[at(reply, data)]
    entry["logprob"] = -entry["logprob"] + 0.5


VALUES: tuple[Any, ...] = (float("nan"), float("inf"), float("-inf"), -9999.0, None, "-0.5", True, [])


def value(reply: Any, data: st.DataObject) -> None:
    entries(reply)[at(reply, data)]["logprob"] = data.draw(st.sampled_from(VALUES))


def rival_value(reply: Any, data: st.DataObject) -> None:
    listed = entries(reply)[at(reply, data)]["top_logprobs"]
    if listed:
        bad = (float("nan"), None, "-0.5", 0.5)
        data.draw(st.sampled_from(listed))["logprob"] = data.draw(st.sampled_from(bad))


def rival_drop(reply: Any, data: st.DataObject) -> None:
    """A list keeps one entry more than is wanted, so one may go and two may not."""
    listed = entries(reply)[at(reply, data)]["top_logprobs"]
    del listed[-2:]


def rival_repeat(reply: Any, data: st.DataObject) -> None:
    listed = entries(reply)[at(reply, data)]["top_logprobs"]
    if listed:
        listed[-1] = dict(listed[0], logprob=listed[-1]["logprob"])


def no_channel(reply: Any, data: st.DataObject) -> None:
    reply["choices"][0]["logprobs"] = data.draw(st.sampled_from((None, {}, {"content": None})))


def index(reply: Any, data: st.DataObject) -> None:
    reply["choices"][0]["index"] = data.draw(st.sampled_from((1, -1, "0")))


DAMAGES = (
    drop,
    repeat,
    swap,
    shift,
    cut,
    other_token,
    other_id,
    count,
    sign,
    value,
    rival_value,
    rival_drop,
    rival_repeat,
    no_channel,
    index,
)

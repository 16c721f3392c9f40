"""Damage to scored chat replies: each is refused, or what is lifted does not change."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logproof.errors import BadReply, LogproofError
from logproof.ir.facts import Facts
from logproof.models import channels
from models.chat_wires import request_of
from models.compare import difference, same_reply
from models.dialects.chat_cases import DIALECT
from models.entry_damage import DAMAGES, View
from models.wires import load

SCORED = {
    "compat_logprobs_token_ids": 1,
    "vllm_lp_as_ids": 2,
    "vllm_lp5": 4,
    "vllm_lp5_ids": 4,
    "vllm_stop": 0,
    "vllm_forced_eos": 0,
    "vllm_so_choice_lp": 2,
    "vllm_prefill": 0,
    "sglang_logprobs": 1,
    "llamacpp_lp": 1,
}
"""Recording -> the width that its lists are certain for."""


def lifted(name: str, reply: Any) -> Any:
    request = request_of(load("openai_chat", name).request, sampled=SCORED[name])
    response = DIALECT.lift(request, json.dumps(reply).encode())
    channels.check(request, response, Facts())
    return same_reply(response)


REPLIES = {name: (reply, lifted(name, reply)) for name in SCORED for reply in [load("openai_chat", name).json()]}


def view(reply: Any) -> View:
    choice = reply["choices"][0]
    stopped = choice["finish_reason"] == "stop"
    return View(choice["logprobs"], "content", reply["usage"], "completion_tokens", stopped, choice.get("token_ids"))


@pytest.mark.parametrize("name", SCORED)
@settings(max_examples=40)
@given(data=st.data())
def test_damage(name: str, data: st.DataObject) -> None:
    reply, whole = REPLIES[name]
    broken = copy.deepcopy(reply)
    data.draw(st.sampled_from(DAMAGES))(view(broken), data)
    try:
        found = lifted(name, broken)
    except LogproofError:
        return
    assert difference(found, whole) is None


@pytest.mark.parametrize("index", [1, -1, "0"])
def test_another_index_is_refused(index: object) -> None:
    broken = copy.deepcopy(REPLIES["vllm_lp5"][0])
    broken["choices"][0]["index"] = index
    with pytest.raises(BadReply):
        lifted("vllm_lp5", broken)

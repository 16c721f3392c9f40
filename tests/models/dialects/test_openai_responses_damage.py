"""Damage to scored replies of the Responses wire: each is refused, or what is lifted does not change."""

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
from models.compare import difference, same_reply
from models.dialects.responses_cases import DIALECT
from models.entry_damage import DAMAGES, View
from models.responses_wires import request_of
from models.wires import load

SCORED = {"vllm_lp": 2, "vllm_lp_include_only": 0, "compat_logprobs": 1, "sglang_logprobs": 1}
"""Recording -> the width that its lists are certain for."""


def lifted(name: str, reply: Any) -> Any:
    """What was lifted, but for the items themselves, which go back as they came."""
    request = request_of(load("openai_responses", name).request, sampled=SCORED[name])
    response = DIALECT.lift(request, json.dumps(reply).encode())
    channels.check(request, response, Facts())
    found = same_reply(response)
    for choice in found["choices"]:
        del choice["turn"]
    return found


REPLIES = {name: (reply, lifted(name, reply)) for name in SCORED for reply in [load("openai_responses", name).json()]}


def view(reply: Any) -> View:
    (part,) = reply["output"][0]["content"]
    return View(part, "logprobs", reply["usage"], "output_tokens", reply["status"] == "completed", None)


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

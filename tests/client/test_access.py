"""Access: requests of a person to one endpoint, checked before, announced and recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from client import served
from fakes.server import FakeServer
from logproof.client.access import Access, generate, score
from logproof.client.connect import Options
from logproof.errors import PlanRefused
from logproof.ir.request import Input, Request


def test_a_request_goes_out_under_the_served_name_and_prompts_one_by_one(tmp_path: Path) -> None:
    lines: list[str] = []
    with FakeServer() as fake:
        served.vllm(fake)
        access = Access(url=fake.url, record=tmp_path)
        prompt = Input(text="The capital of France is")
        call = asyncio.run(generate(access, Request("", prompt), lines.append))
        calls = asyncio.run(score(access, [prompt, prompt], 3, lines.append))
        bodies = served.sent(fake)
    assert (call.request.model, call.dialect) == ("smollm2", "vllm_native")
    assert [b["model"] for b in bodies] == ["smollm2"] * 3
    assert [b.get("prompt_logprobs") for b in bodies] == [None, 3, 3]
    assert [c.response.prompt is not None for c in calls] == [True, True]
    assert lines == ["dialect vllm_native, chosen for vllm 0.32.0"] * 2
    assert len(list(tmp_path.iterdir())) == 3


def test_what_the_dialect_cannot_give_is_refused_before_anything_is_sent() -> None:
    with FakeServer() as fake:
        served.vllm(fake)
        access = Access(url=fake.url, options=Options(dialect="vllm_native"), needs={"top_logprobs": 101})
        with pytest.raises(PlanRefused, match="top_logprobs=101"):
            asyncio.run(score(access, [Input(text="x")], 0, lambda line: None))
        assert served.sent(fake) == []

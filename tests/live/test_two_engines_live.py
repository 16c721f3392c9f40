"""Two real engines, the same float32 weights: the same tokens, and logprobs as near as float32 arithmetic allows.

vLLM and SGLang share no kernels, so their values differ in the last digits; each repeats its own exactly.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from logproof.cli.main import run as command
from logproof.client.connect import Options, connect
from logproof.client.probe import read_facts
from logproof.dialects import openapi_fields
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.audit.verify import verify
from logproof.verify.record.capture import Pins, capture
from logproof.verify.record.prompts import prompts
from logproof.verify.record.stated_claim import StatedClaim, claim_of
from logproof.verify.stats.sampler import Sampler
from verify.builders import needing, policy

NOISE = 1e-4
"""Most that a logprob of one engine differs from the other's, in nats: 6e-5 was seen over 1,320 tokens."""
PROMPTS = (
    "水的化学式是 H2O，由氢和氧组成。",
    "The 🦊 jumps over 🐶🧑‍🚀!",
    "def f(x):\n\treturn {'a': x ** 2}  # naïve\n",
)
WIDTH = 20


def scored(capfd: pytest.CaptureFixture[str], url: str, dialect: str, top: int) -> list[dict[str, object]]:
    """The prompt channels that `logproof score --json` prints, one a prompt."""
    args = ["score", *PROMPTS, "--model", url, "--dialect", dialect, "--top", str(top), "--json"]
    assert command(args) == 0
    decoder, text, found = json.JSONDecoder(), capfd.readouterr().out.strip(), []
    while text:
        reply, end = decoder.raw_decode(text)
        found.append(reply["prompt"])
        text = text[end:].lstrip()
    return found


def test_three_wires_score_the_same_tokens(engine_url: str, sglang_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A Chinese, an emoji and a code prompt: same ids, texts that join to the prompt, a top-k of full width by id."""
    first = scored(capfd, engine_url, "vllm_native", WIDTH)
    second = scored(capfd, sglang_url, "sglang_native", WIDTH)
    echoed = scored(capfd, engine_url, "openai_completions", 0)
    for text, *sides in zip(PROMPTS, first, second, echoed, strict=True):
        mine, theirs, echo = sides
        assert mine["ids"] == theirs["ids"] == echo["ids"]
        for side in sides:
            assert "".join(side["texts"]) == text
        assert mine["logprobs"] == echo["logprobs"]
        assert mine["logprobs"][0] is theirs["logprobs"][0] is None
        gaps = np.abs(np.array(mine["logprobs"][1:]) - np.array(theirs["logprobs"][1:]))
        assert gaps.max() <= NOISE
        for side in (mine, theirs):
            assert side["top"]["ids"]
            assert set(np.diff(side["top"]["offsets"])[1:].tolist()) <= {WIDTH, WIDTH + 1}


def test_the_fields_that_tables_show_are_those_that_vllm_lists(engine_url: str) -> None:
    with urlopen(f"{engine_url}/openapi.json") as reply:
        listed = read_facts({"/openapi.json": json.load(reply)}).fields
    assert {route: listed[route] for route in openapi_fields.VLLM} == openapi_fields.VLLM


def parity(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, object]]:
    """Exit code and record of `logproof parity --json`."""
    code = command(["parity", *args, "--json"])
    return code, json.loads(capfd.readouterr().out)


def test_parity_of_two_engines_shows_each_one_s_own_noise(
    engine_url: str, sglang_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engines = ("--model", engine_url, "--model-b", sglang_url)
    limits = ("--control", "--limit", "1", "--shots", "0", "--tolerance", str(NOISE), "--out", str(tmp_path / "p"))
    code, found = parity(capfd, "vllm_native", "sglang_native", "arc_easy_ppl", *engines, *limits)
    assert (code, found["verdict"], found["reasons"]) == (0, "agree", [])
    between, own, other = (found[name]["input"] for name in ("pair", "noise", "noise_b"))
    for channel in (between, own, other):
        assert channel["tokens"] > 50
        assert channel["differing_ids"] == channel["differing_texts"] == channel["unknown_ids"] == 0
        assert sum(channel["spread"]["counts"]) > 50
    assert 0 < between["max_difference"] <= NOISE
    assert own["max_difference"] == 0
    assert other["max_difference"] <= between["max_difference"]


def test_plain_and_streamed_chat_are_identical(
    engine_url: str, exact: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One request at a time, after a run that fills the prefix cache: then every request finds the same one."""
    asked = ("gsm8k_gen", "--model", engine_url, "--limit", "2", "--shots", "1", "--max-tokens", "24")
    parity(capfd, "openai_chat", "openai_chat", *asked, "--out", str(tmp_path / "warm"))
    args = ("openai_chat", "openai_chat", *asked, "--stream-b", "--control", "--out", str(tmp_path / "p"))
    code, found = parity(capfd, *args)
    assert (code, found["verdict"], found["reasons"]) == (0, "agree", [])
    sampled, own = found["pair"]["sampled"], found["noise"]["sampled"]
    assert sampled["tokens"] == own["tokens"] > 20
    assert sampled["differing_ids"] == sampled["unknown_ids"] == sampled["unknown_meaning"] == 0
    if exact:
        assert sampled["max_difference"] == own["max_difference"] == 0


def test_records_of_one_engine_replay_on_the_other(engine_url: str, sglang_url: str) -> None:
    """A prefill on a stock SGLang judges what vLLM produced, and the other way round, greedy: SGLang takes no seed."""

    async def work() -> None:
        async with (
            connect(engine_url, Options(texts=False)) as vllm,
            connect(sglang_url, Options(texts=False)) as sglang,
        ):
            for maker, trusted, sampler in ((vllm, sglang, Sampler(1.0)), (sglang, vllm, Sampler(0.0))):
                pins = Pins(max_tokens=24, k=5, nonce="two" if maker is vllm else None, sampler=sampler)
                stated = StatedClaim(dtype="float32", runner="v1", device="cpu", eos_ids=(2,))
                claim = claim_of(maker.facts, "smollm2", stated)
                made = [c async for c in capture(maker, RECORDS, pins, claim, concurrency=1)]
                for one in made:
                    assert one.artifact is not None, one.error
                    answer, verdict = await verify(trusted, one.artifact, RULES, known=one.known)
                    assert isinstance(answer, ReplayResult), answer
                    assert (answer.method, answer.engine) == ("prefill", trusted.facts.engine)
                    assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.findings

    asyncio.run(work())


RECORDS = prompts("\n".join(json.dumps({"text": t}) for t in ("Once upon a time", "写一首关于春天的诗 🌸")).encode())
RULES = policy(model_id="smollm2", exact=2e-4, k=5, requires=needing("distribution"))

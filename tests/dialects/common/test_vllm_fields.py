"""vLLM's own fields, as its completions and its chat route both have them."""

from __future__ import annotations

import msgspec
import pytest

from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.dialects.sample_requests import FULL_FACTS, INPUTS
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.request import Replay, Request, Sampling, Scoring

ASKS = {"vllm_native": Request("m", INPUTS["text"]), "openai_chat": Request("m", INPUTS["messages"])}
"""dialect that has the fields -> a request that it takes."""


@pytest.mark.parametrize(
    ("change", "facts", "leaf", "reason"),
    [
        ({"scoring": Scoring(label_ids=(1,))}, Facts(), "scoring.label_ids", "list logprob_token_ids"),
        ({"scoring": Scoring(label_ids=(1,), prompt=0)}, FULL_FACTS, "scoring.label_ids", "two requests"),
        ({"scoring": Scoring(label_ids=(1,), sampled=2)}, FULL_FACTS, "scoring.sampled", "ask 0"),
        ({"scoring": Scoring(label_ids=(1,), top_by="text")}, FULL_FACTS, "scoring.top_by", "keyed by id"),
        ({"scoring": Scoring(prompt=101)}, FULL_FACTS, "scoring.prompt", "at most 100"),
        ({"replay": Replay(token_ids=(1,))}, Facts(engine="vllm"), "replay.token_ids", "no working logproof plugin"),
        ({"replay": Replay(logprobs_mode="raw")}, Facts(engine="vllm"), "replay.logprobs_mode", "no working"),
        ({"replay": Replay(token_ids=(1,)), "sampling": Sampling(n=2)}, FULL_FACTS, "replay.token_ids", "one choice"),
        ({"sampling": Sampling(seed=-1)}, FULL_FACTS, "sampling.seed", "no seed at all"),
        ({"sampling": Sampling(n=2, temperature=0)}, FULL_FACTS, "sampling.n", "temperature above 0"),
    ],
)
@pytest.mark.parametrize("dialect_id", ASKS)
def test_both_routes_refuse_alike(
    dialect_id: str, change: dict[str, msgspec.Struct], facts: Facts, leaf: str, reason: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        lower(msgspec.structs.replace(ASKS[dialect_id], **change), get_dialect(dialect_id), facts)
    assert reason in dict(caught.value.refusals)[leaf]

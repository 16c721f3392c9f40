"""Label scores of vLLM, as its completions and its chat route both have them."""

from __future__ import annotations

import json

import msgspec
import pytest

from logproof.dialects.common.vllm_labels import lift_labels
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.dialects.sample_requests import FULL_FACTS, INPUTS
from logproof.errors import BadReply, MissingChannel
from logproof.ir.request import Request, Scoring

LISTED = {"token_id:1": -1.0, "token_id:7": -3.0, "token_id:9": -2.0}
ASKS = {"vllm_native": Request("m", INPUTS["text"]), "openai_chat": Request("m", INPUTS["messages"])}
"""dialect that has the fields -> a request that it takes."""


def test_label_scores() -> None:
    labels = lift_labels([("/x/0", LISTED)], (9, 7), "raw", "/x")
    assert labels.ids.tolist() == [9, 7]
    assert labels.logprobs.tolist() == [[-2.0, -3.0]]
    for row, label in ((LISTED, 8), ({}, 9)):
        with pytest.raises(MissingChannel, match=rf"label ids \[{label}\]") as caught:
            lift_labels([("/x/0", row)], (label,), "raw", "/x")
        assert "/x/0" in str(caught.value)
    with pytest.raises(BadReply, match="no logprob"):
        lift_labels([("/x/0", {"token_id:7": 3.0})], (7,), "raw", "/x")


@pytest.mark.parametrize("dialect_id", ASKS)
def test_label_scores_stand_beside_logprobs_also_where_the_width_was_dropped(dialect_id: str) -> None:
    asked = msgspec.structs.replace(ASKS[dialect_id], scoring=Scoring(label_ids=(1,), sampled=3))
    body = json.loads(lower(asked, get_dialect(dialect_id), FULL_FACTS, drop=("scoring.sampled",)).wire.body)
    assert body["logprob_token_ids"] == [1]
    assert "logprobs" in body
    assert "top_logprobs" not in body

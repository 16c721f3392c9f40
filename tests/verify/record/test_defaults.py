from __future__ import annotations

import json

import pytest

from logproof.errors import UsageError
from logproof.verify.artifact.artifact import RecordedSampling
from logproof.verify.record.defaults import (
    NEUTRAL,
    Defaults,
    DefaultValue,
    merged,
    neutral,
    of_config,
    of_engine,
    resolve,
    stated,
)

CONFIG = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_new_tokens": 2048, "eos_token_id": [2, 7], "other": 1}


def test_vllm_states_the_neutral_values() -> None:
    found = neutral()
    assert {n: k.value for n, k in found.values.items()} == NEUTRAL
    assert {k.source for k in found.values.values()} == {"operator"}
    assert found.whole


def test_a_generation_config_gives_its_values_and_neutral_ones_for_the_rest() -> None:
    found = of_config(json.dumps(CONFIG).encode())
    values = {n: k.value for n, k in found.values.items()}
    assert values == {**NEUTRAL, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 2048}
    assert {k.source for k in found.values.values()} == {"generation_config"}
    assert (found.eos_ids, found.whole) == ((2, 7), True)
    assert of_config(b'{"eos_token_id": 2}').eos_ids == (2,)
    assert of_config(b"{}").eos_ids is None


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"temperature": "hot"}'])
def test_a_file_that_is_no_generation_config(data: bytes) -> None:
    with pytest.raises(UsageError, match="no generation config"):
        of_config(data)


def test_single_values_are_checked() -> None:
    assert stated({"top_k": 50, "stop_token_ids": [3]}).values == {
        "top_k": DefaultValue(50, "operator"),
        "stop_token_ids": DefaultValue((3,), "operator"),
    }
    for values, words in (({"seed": 3}, "no such leaf"), ({"topk": 3}, "no such leaf"), ({"top_k": "x"}, "--default")):
        with pytest.raises(UsageError, match=words):
            stated(values)


def test_the_engine_s_word_must_agree_with_the_statement() -> None:
    told = of_engine({"temperature": 0.6000000238418579})
    found = merged(told, of_config(json.dumps(CONFIG).encode()), stated({"top_k": 50}))
    assert found.values["temperature"].source == "engine"
    assert found.values["top_k"] == DefaultValue(50, "operator")
    assert (found.eos_ids, found.whole) == ((2, 7), True)
    with pytest.raises(UsageError, match="temperature is stated as 1.0, but the engine says that it takes 0.6"):
        merged(told, neutral(), Defaults())


def test_only_gaps_are_filled() -> None:
    asked = RecordedSampling(temperature=0.0, top_p=0.5, sources={"top_p": "request"})
    found = resolve(asked, neutral())
    assert (found.temperature, found.top_p, found.top_k, found.min_p) == (0.0, 0.5, 0, 0.0)
    assert (found.sources["top_p"], found.sources["min_p"]) == ("request", "operator")
    assert "temperature" not in found.sources
    assert resolve(asked, Defaults()) is asked

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from logproof.verify.artifact.artifact import Artifact, TokenIds, artifact_columns
from logproof.verify.artifact.completion_text import CompletionText
from logproof.verify.checks import recorded
from logproof.verify.checks.case import TrustedFacts
from logproof.verify.checks.end import end_chances, end_faults, ending_ids, may_end_by_text
from logproof.verify.stats.sampler import Sampler
from verify.builders import (
    EOS,
    VOCAB,
    artifact,
    change,
    draw,
    from_maps,
    log_softmax,
    logits,
    masked,
    own_request,
    record,
    requested,
)

replace = msgspec.structs.replace
KNOWN = TrustedFacts(eos_ids=(EOS,))
"""The verifier knows what ends a completion."""


def made(ids: list[int], finish: str | None, **sampling: object) -> Artifact:
    base = artifact(record(logits(len(ids), 1), ids, 3), k=3)
    settings = {"ignore_eos": False, "max_tokens": 4, **sampling}
    return change(requested(base, **settings), end=replace(base.end, finish_reason=finish))


@pytest.mark.parametrize(
    ("ids", "finish", "sampling"),
    [
        ([3, 4, 5, 6], "length", {}),
        ([3, 4, EOS], "stop", {}),
        ([3, 4, 9], "stop", {"stop_token_ids": (9,)}),
        ([3, EOS, 4, 6], "length", {"ignore_eos": True}),
        ([3, EOS], "tool_calls", {}),
    ],
)
def test_sound_ends(ids: list[int], finish: str, sampling: dict[str, object]) -> None:
    assert end_faults(made(ids, finish, **sampling), KNOWN) == []


@pytest.mark.parametrize(
    ("ids", "finish", "sampling", "words"),
    [
        ([3, 4, 5, 6, 7], "length", {}, "5 tokens, max_tokens is 4"),
        ([3, 4], "length", {}, "after 2 tokens, max_tokens is 4"),
        ([3, EOS, 4, 6], "length", {}, "token 1"),
        ([3, 9, 4, 6], "length", {"stop_token_ids": (9,)}, "token 1"),
        ([3, 4], "stop", {}, "ends nothing"),
        ([3, 4, 5, EOS], "length", {}, "finish is length, but"),
        ([3, EOS], "stop", {"min_tokens": 3}, "min_tokens is 3"),
    ],
)
def test_contradictions(ids: list[int], finish: str, sampling: dict[str, object], words: str) -> None:
    found = end_faults(made(ids, finish, **sampling), KNOWN)
    assert [f.kind for f in found] == ["contradiction"]
    assert words in found[0].detail


@pytest.mark.parametrize(
    ("finish", "sampling", "words"),
    [
        (None, {}, "no finish reason"),
        ("content_filter", {}, "finish is content_filter"),
        ("length", {"max_tokens": None}, "max_tokens is unresolved"),
        ("stop", {"stop": None}, "unresolved"),
        ("stop", {"ignore_eos": None}, "unresolved"),
    ],
)
def test_unknown_ends(finish: str | None, sampling: dict[str, object], words: str) -> None:
    found = end_faults(made([3, 4, 5, 6], finish, **sampling))
    assert [f.kind for f in found] == ["unknown"]
    assert words in found[0].detail


def test_texts_only() -> None:
    base = made([3], "length")
    bare = replace(base, tokens=TokenIds(prompt_ids=None, completion_ids=None))
    assert [f.kind for f in end_faults(bare)] == ["unknown"]


def test_ending_ids() -> None:
    base = made([3], "length", stop_token_ids=(9,))
    assert ending_ids(base) == {EOS, 9}
    assert ending_ids(made([3], "length", ignore_eos=True)) == frozenset()
    assert ending_ids(made([3], "length", stop_token_ids=None)) is None
    model = replace(base.claim.model, eos_ids=None)
    assert ending_ids(change(base, claim=replace(base.claim, model=model))) is None


CUTS = [Sampler(1.0), Sampler(0.7), Sampler(1.3, 12), Sampler(1.0, 0, 0.6), Sampler(0.9, 30, 0.9, 0.02), Sampler(0.0)]


@pytest.mark.parametrize("sampler", CUTS)
@pytest.mark.parametrize("k", [0, 5, VOCAB])
def test_the_chance_of_an_end_lies_between_its_bounds(sampler: Sampler, k: int) -> None:
    """Against a slow sampler over the whole vocabulary; with all of it listed, the bounds meet."""
    z = logits(30, 8)
    z[:, EOS] += 5.0
    ids = draw(z, sampler, 3)
    base = artifact(record(z, ids, k), sampler, k=k)
    free = change(base, sampling=replace(base.sampling, ignore_eos=False, stop_token_ids=(9,)))
    got = end_chances(free, artifact_columns(free), sampler)
    assert got is not None
    true = np.exp(log_softmax(np.array([z_i if sampler.greedy else masked(z_i, sampler) for z_i in z])))
    chance = true[:, EOS] + true[:, 9]
    assert (got.low <= chance + 1e-5).all()
    assert (chance <= got.high + 1e-5).all()
    if k == VOCAB:
        assert np.abs(got.high - got.low).max() < 1e-2
        assert got.numbers["went_on"] == pytest.approx(np.prod(1.0 - chance[: 30 - got.stopped]), rel=0.05, abs=1e-9)


def ended(rows: list[dict[int, float]], ids: list[int], finish: str, **fields: object) -> tuple[str, dict[str, float]]:
    """What S6 says of rows of probabilities."""
    columns = from_maps(ids, [{t: float(np.float32(math.log(p))) for t, p in row.items()} for row in rows])
    base = artifact(columns, k=2)
    settings = {"ignore_eos": False, "max_tokens": len(ids), **fields}
    told = change(base, sampling=replace(base.sampling, **settings), end=replace(base.end, finish_reason=finish))
    found = next(f for f in recorded.check(told, KNOWN).findings if f.test == "S6")
    assert found.outcome == "pass"
    return found.detail, found.statistic


def test_an_early_stop_on_an_unlikely_end_is_told() -> None:
    words, numbers = ended([{3: 0.6, 4: 0.3}, {3: 0.9, EOS: 0.001}], [3, EOS], "stop")
    assert words == "the end fits the claim; its last token had a chance of 0.001"
    assert numbers == pytest.approx({"end_low": 0.001, "end_high": 0.001, "passed": 0.0, "went_on": 1.0})


def test_a_suppressed_end_is_told() -> None:
    rows = [{3: 0.6, EOS: 0.3}, {3: 0.04, EOS: 0.95}, {3: 0.6, 4: 0.3}]
    words, numbers = ended(rows, [3, 3, 3], "length")
    assert "at its last token an end had a chance of at most 0.1" in words
    assert "at token 1 one had 0.95, and the text went on (past all of them with a chance of at most 0.035)" in words
    assert numbers["passed"] == pytest.approx(0.95)
    assert numbers["went_on"] == pytest.approx(0.7 * 0.05)
    assert numbers["end_low"] == 0.0
    assert numbers["end_high"] == pytest.approx(0.101, abs=1e-3)


def test_without_known_ends_no_chance_is_told() -> None:
    rows = [{3: 0.6, EOS: 0.3}, {3: 0.9, 4: 0.05}]
    assert ended(rows, [3, 3], "length", ignore_eos=True) == ("the end fits the claim", {})
    for bent in ({"min_tokens": 2}, {"temperature": None}, {"presence_penalty": 1.0}):
        assert ended(rows, [3, 3], "length", **bent)[1] == {}


@pytest.mark.parametrize(
    ("ids", "finish", "leaf", "value"),
    [
        ([3, 4], "stop", "stop", ("END",)),
        ([3, 9], "stop", "stop_token_ids", (9,)),
        ([3, EOS, 4, 6], "length", "ignore_eos", True),
        ([3, 4], "length", "max_tokens", 2),
    ],
)
@pytest.mark.parametrize("source", ["engine", "operator", "generation_config", None])
def test_what_only_the_record_says_explains_no_end(
    ids: list[int], finish: str, leaf: str, value: object, source: str | None
) -> None:
    base, facts = made(ids, finish), TrustedFacts(text=CompletionText(whole="END", before="EN"))
    sources = {} if source is None else {leaf: source}
    claimed = change(base, sampling=replace(base.sampling, **{leaf: value}, sources=sources))
    assert [f.kind for f in end_faults(claimed, facts)] == ["unknown"]
    assert f"{leaf} {value!r} is not what the request states" in end_faults(claimed, facts)[0].detail
    asked = requested(base, **{leaf: value})
    assert end_faults(asked, facts) == []
    unread = change(asked, request=replace(asked.request, body=None))
    assert [f.kind for f in end_faults(unread, facts)][:1] == ["unknown"]


def test_a_limit_that_the_protocol_fixes_ends_a_text() -> None:
    base = made([3] * 16, "length", max_tokens=None)
    told = change(base, sampling=replace(base.sampling, max_tokens=16, sources={"max_tokens": "protocol"}))
    assert end_faults(told) == []


def test_an_id_that_only_the_record_calls_an_end_ends_nothing() -> None:
    """An executor that stops early claims that its last token ends completions."""
    base = made([3, 4], "stop")
    model = replace(base.claim.model, eos_ids=(EOS, 4))
    claimed = change(base, claim=replace(base.claim, model=model))
    assert [f.kind for f in end_faults(claimed)] == ["unknown"]
    assert "only the record says that 4 ends a completion" in end_faults(claimed)[0].detail
    assert [f.kind for f in end_faults(claimed, KNOWN)] == ["contradiction"]
    own = TrustedFacts(known=own_request(claimed))
    assert end_faults(claimed, own) == []
    assert end_faults(made([3, 4, 5, 6], "length")) == []


@pytest.mark.parametrize(
    ("text", "sampling", "words"),
    [
        (CompletionText(whole="the END", before="the E"), {}, None),
        (CompletionText(whole="END END", before="END E"), {"min_tokens": 1}, None),
        (None, {}, "did not make its text"),
        (CompletionText(whole="the end", before="the e"), {}, "completes no stop string"),
        (CompletionText(whole="END, too late", before="END, too"), {}, "completes no stop string"),
    ],
)
def test_a_stop_string_is_looked_for_in_the_text_that_the_verifier_made(
    text: CompletionText | None, sampling: dict[str, object], words: str | None
) -> None:
    """An executor that stops early could say of any token that it completes a stop string."""
    stopped = made([3, 4], "stop", stop=("END",), **sampling)
    assert may_end_by_text(stopped, KNOWN)
    found = end_faults(stopped, replace(KNOWN, text=text))
    assert [f.kind for f in found] == ([] if words is None else ["unknown"])
    assert words is None or words in found[0].detail


def test_no_text_is_needed_where_ids_show_the_end() -> None:
    assert not may_end_by_text(made([3, EOS], "stop", stop=("END",)), KNOWN)
    assert not may_end_by_text(made([3, 4, 5, 6], "length", stop=("END",)), KNOWN)
    assert not may_end_by_text(made([3, 4], "stop"), KNOWN)

"""The certain top-k, counts and usage that the chat and responses wires share."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.dialects.common import openai_scores
from logproof.dialects.common.openai_scores import Rival, ScoredToken
from logproof.errors import BadReply, SpoiledTopList
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Function, Input, Output, Replay, Request, Sampling, Scoring, Tools
from logproof.ir.response import Meaning, Usage

ASK = Request("m", Input(messages=(text_message("user", "Hi"),)))


def entry(token: str, logprob: float, *rivals: tuple[str, float]) -> ScoredToken:
    return ScoredToken(token, logprob, None, [Rival(t, v) for t, v in rivals])


def scoring(**fields: object) -> Request:
    return msgspec.structs.replace(ASK, scoring=msgspec.convert(fields, Scoring))


@st.composite
def positions(draw: st.DrawFn) -> tuple[dict[int, float], int, int]:
    """(logprobs of a whole vocabulary, sampled id, k), ties included."""
    size = draw(st.integers(3, 12))
    values = draw(st.lists(st.integers(-9, -1), min_size=size, max_size=size))
    logprobs = {i: float(v) for i, v in enumerate(values)}
    return logprobs, draw(st.integers(0, size - 1)), draw(st.integers(1, size - 1))


def best(logprobs: dict[int, float], k: int) -> list[tuple[int, float]]:
    return sorted(logprobs.items(), key=lambda e: -e[1])[:k]


def vllm_list(logprobs: dict[int, float], own: int, k: int) -> list[Rival]:
    """The sampled token first, then the k best, cut to k."""
    rest = [e for e in best(logprobs, k) if e[0] != own]
    return [Rival(f"token_id:{t}", v) for t, v in [(own, logprobs[own]), *rest][:k]]


def plain_list(logprobs: dict[int, float], own: int, k: int) -> list[Rival]:
    """The k best, sampled or not."""
    return [Rival(f"token_id:{t}", v) for t, v in best(logprobs, k)]


@pytest.mark.parametrize("rule", [vllm_list, plain_list])
@given(case=positions())
def test_one_wider_gives_the_k_best_on_every_server(rule: object, case: tuple[dict[int, float], int, int]) -> None:
    logprobs, own, k = case
    assert callable(rule)
    listed = rule(logprobs, own, k + 1)
    found = openai_scores.narrow(ScoredToken(f"token_id:{own}", logprobs[own], None, listed), k, True, "")
    assert found[own] == logprobs[own]
    assert all(logprobs[t] == v for t, v in found.items() if isinstance(t, int))
    others = sorted((v for t, v in found.items() if t != own), reverse=True)
    everything = sorted(logprobs.values(), reverse=True)
    assert sorted(found.values(), reverse=True)[:k] == everything[:k]
    assert len(found) in (k, k + 1)
    assert len(found) == k or logprobs[own] <= min(others)


@given(case=positions())
def test_a_list_of_k_is_exact_or_refused(case: tuple[dict[int, float], int, int]) -> None:
    logprobs, own, k = case
    entry_ = ScoredToken(f"token_id:{own}", logprobs[own], None, vllm_list(logprobs, own, k))
    try:
        found = openai_scores.narrow(entry_, k, True, "")
    except BadReply:
        return
    assert sorted(found.values(), reverse=True)[:k] == sorted(logprobs.values(), reverse=True)[:k]


@pytest.mark.parametrize(
    ("found", "width", "message"),
    [
        (entry("a", -1.0, ("a", -1.0)), 1, "0 certain entries for a top 1 in a list of 1"),
        (entry("a", -3.0, ("a", -3.0), ("b", -1.0)), 2, "1 certain entries"),
        (entry("a", -1.0, ("a", -1.0), ("b", -2.0)), 3, "2 certain entries"),
        (entry("a", -1.0, *((c, -1.5) for c in "abcde")), 2, "two values for the sampled token"),
        (entry("a", -1.0, ("a", -1.0), *((c, -1.5) for c in "bcdef")), 2, "in a list of 6"),
        (entry("a", -1.0, ("b", -2.0), ("c", -3.0)), 1, "lacks the sampled token"),
        (entry("yes", -0.1, ("yes", -0.1), ("yes", -0.1), ("no", -2.4)), 2, "two entries for 'yes'"),
        (entry("\ufffd", -4.0, ("\ufffd", -4.0), ("\ufffd", -5.0), ("b", -6.0)), 2, "two entries"),
    ],
)
def test_an_uncertain_list_is_refused(found: ScoredToken, width: int, message: str) -> None:
    with pytest.raises(BadReply, match=message):
        openai_scores.narrow(found, width, False, "/x")


def test_an_id_listed_twice_counts_once() -> None:
    twice = entry("token_id:5", -0.1, ("token_id:5", -0.1), ("token_id:5", -0.1), ("token_id:6", -2.4))
    assert openai_scores.narrow(twice, 2, True, "") == {5: -0.1, 6: -2.4}
    with pytest.raises(BadReply, match="0 certain entries for a top 2"):
        openai_scores.narrow(entry("token_id:5", -0.1, ("token_id:5", -0.1), ("token_id:5", -0.1)), 2, True, "")
    with pytest.raises(BadReply, match="two entries for 6"):
        openai_scores.narrow(entry("token_id:5", -0.1, ("token_id:6", -1.0), ("token_id:6", -2.4)), 1, True, "")


def test_a_text_among_ids_is_refused() -> None:
    with pytest.raises(BadReply, match="keyed by text among ids"):
        openai_scores.narrow(entry("token_id:5", -0.1, ("token_id:5", -0.1), ("x", -2.4)), 1, True, "")


@pytest.mark.parametrize(
    ("engine", "limit", "k", "asked", "fault"),
    [
        ("vllm", 100, 5, 6, None),
        ("vllm", 100, 99, 100, None),
        ("vllm", 100, 100, 101, "a certain top 100 takes 101 on this wire"),
        ("vllm", 20, 20, 21, "takes 21"),
        ("vllm", None, 20, 21, None),
        ("sglang", None, 20, 21, None),
        ("openai", None, 19, 20, None),
        ("openai", None, 20, 20, None),
        ("openai", None, 21, 22, "at most 20"),
        (None, None, 20, 20, None),
        (None, None, 0, 1, None),
    ],
)
def test_widths(engine: str | None, limit: int | None, k: int, asked: int, fault: str | None) -> None:
    facts = Facts(engine=engine, max_logprobs=limit)
    assert openai_scores.asked_width(k, facts) == asked
    found = openai_scores.width_fault(k, facts)
    assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize(
    ("server", "change", "meaning"),
    [
        ("vllm", {}, "raw"),
        ("vllm", {"sampling": Sampling(temperature=0.2)}, "raw"),
        ("vllm", {"replay": Replay(logprobs_mode="processed")}, "processed"),
        ("vllm", {"output": Output(json_object=True)}, "constrained"),
        ("vllm", {"tools": Tools(functions=(Function("f"),), choice="required")}, "constrained"),
        ("vllm", {"tools": Tools(functions=(Function("f"),), choice="function:f")}, "constrained"),
        ("vllm", {"tools": Tools(functions=(Function("f", strict=True),))}, "constrained"),
        ("vllm", {"tools": Tools(functions=(Function("f", strict=True),), choice="none")}, "raw"),
        ("vllm", {"tools": Tools(functions=(Function("f"),), choice="auto")}, "raw"),
        (None, {}, "unknown"),
        (None, {"sampling": Sampling(temperature=1.0)}, "raw"),
        (None, {"sampling": Sampling(temperature=1.0, logit_bias={1: 2.0})}, "unknown"),
        (None, {"sampling": Sampling(temperature=1.0, top_k=3)}, "unknown"),
        ("sglang", {"sampling": Sampling(temperature=0.7)}, "unknown"),
        ("sglang", {"sampling": Sampling(temperature=1.0, frequency_penalty=0.5)}, "unknown"),
    ],
)
def test_meaning(server: openai_scores.Server, change: dict[str, msgspec.Struct], meaning: Meaning) -> None:
    assert openai_scores.sampled_meaning(msgspec.structs.replace(ASK, **change), server) == meaning


def test_minus_9999_is_an_impossible_token_only_where_vllm_lists_it() -> None:
    masked = [entry("token_id:1", 0.0, ("token_id:1", 0.0), ("token_id:2", -9999.0))]
    constrained = msgspec.structs.replace(scoring(sampled=2), output=Output(json_object=True))
    tokens = openai_scores.sampled_tokens(constrained, masked, "vllm", "/x")
    assert tokens.top is not None
    assert tokens.top.by_id(0) == {1: 0.0, 2: -np.inf}
    with pytest.raises(BadReply, match="no probability on this server"):
        openai_scores.sampled_tokens(scoring(sampled=1), masked, None, "/x")
    forced = entry("token_id:1", -9999.0, ("token_id:1", -9999.0), ("token_id:2", -0.1))
    assert openai_scores.sampled_tokens(scoring(sampled=0), [forced], "vllm", "/x").logprobs[0] == -np.inf
    for lost in (entry("a", -9999.0), entry("a", -9999.0, ("b", -0.1))):
        with pytest.raises(BadReply, match="not known"):
            openai_scores.sampled_tokens(scoring(sampled=0), [lost], "vllm", "/x")
    with pytest.raises(BadReply, match="not known"):
        openai_scores.sampled_tokens(scoring(sampled=0), [forced], None, "/x")


def test_lists_of_one_reply_are_equally_long() -> None:
    a = entry("a", -0.5, ("a", -0.5), ("x", -1.0), ("y", -2.0))
    shorter = entry("b", -0.5, ("b", -0.5), ("x", -1.0))
    beside = entry("c", -3.0, ("x", -0.5), ("y", -2.0), ("c", -3.0))
    for listed in ([a, a], [beside, shorter], [beside, beside]):
        assert openai_scores.sampled_tokens(scoring(sampled=1), listed, None, "/x").top is not None
    lone = ScoredToken("b", -0.5, None, [Rival("b", -0.5)])
    for listed in ([a, shorter], [beside, lone]):
        with pytest.raises(BadReply, match="top lists of"):
            openai_scores.sampled_tokens(scoring(sampled=1), listed, None, "/x")


def test_a_text_that_differs_from_its_bytes_is_refused() -> None:
    for fine in (
        ScoredToken("a", -1.0, [97]),
        ScoredToken("\\xe4", -1.0, [0xE4]),
        ScoredToken("a", -1.0, None),
        ScoredToken("a", -1.0, []),
    ):
        assert len(openai_scores.sampled_tokens(scoring(sampled=0), [fine], None, "/x")) == 1
    with pytest.raises(BadReply, match="text and its bytes differ"):
        openai_scores.sampled_tokens(scoring(sampled=0), [ScoredToken("a", -1.0, [98])], None, "/x")


def test_ids_asked_texts_came() -> None:
    with pytest.raises(BadReply, match="ids were asked"):
        openai_scores.sampled_tokens(scoring(sampled=0, top_by="id"), [entry("a", -1.0)], None, "/x")


def test_texts_stand_in_bytes_beside_ids() -> None:
    whole = [ScoredToken("token_id:1", -1.0, [97]), ScoredToken("token_id:2", -1.0, [])]
    assert openai_scores.sampled_tokens(scoring(sampled=0), whole, "vllm", "").texts == ("a", "")
    for unknown in (None, [255]):
        cut = [ScoredToken("token_id:1", -1.0, [97]), ScoredToken("token_id:2", -1.0, unknown)]
        assert openai_scores.sampled_tokens(scoring(sampled=0), cut, "vllm", "").texts is None


@pytest.mark.parametrize(
    ("scored", "usage", "server", "stopped", "ok"),
    [
        (3, Usage(completion=3), "vllm", 1, True),
        (2, Usage(completion=3), "vllm", 1, False),
        (3, Usage(completion=5, reasoning=2), "sglang", 0, False),
        (2, Usage(completion=3), None, 1, True),
        (2, Usage(completion=3), None, 0, False),
        (1, Usage(completion=3), None, 1, False),
        (3, Usage(completion=5, reasoning=2), None, 0, True),
        (5, Usage(completion=5, reasoning=2), None, 0, True),
        (4, Usage(completion=3), None, 1, False),
        (3, Usage(), None, 1, False),
    ],
)
def test_counts(scored: int, usage: Usage, server: openai_scores.Server, stopped: int, ok: bool) -> None:
    if ok:
        openai_scores.check_count(scored, usage, server, stopped, "/choices")
        return
    with pytest.raises(BadReply, match="usage says|nothing in the reply says"):
        openai_scores.check_count(scored, usage, server, stopped, "/choices")


def test_tokens_must_join_to_the_text() -> None:
    pieces = [ScoredToken("\\xe4\\xbd", -1.0, [0xE4, 0xBD]), ScoredToken("\\xa0", -1.0, [0xA0]), entry("!", -1.0)]
    openai_scores.check_text(pieces, "你!", "")
    openai_scores.check_text(pieces, "你", "")
    with pytest.raises(BadReply, match="do not join"):
        openai_scores.check_text(pieces, "你!?", "")


def test_pieces_of_characters_may_still_join() -> None:
    cut = [entry("a", -1.0), entry("\ufffd", -1.0), entry("\ufffd", -1.0), entry("!", -1.0)]
    openai_scores.check_text(cut, "a你!", "")
    openai_scores.check_text([*cut, entry("<|im_end|>", -1.0)], "a你!", "")
    with pytest.raises(BadReply, match="do not join"):
        openai_scores.check_text([cut[3], *cut[1:3], cut[0]], "a你!", "")


@pytest.mark.parametrize("width", [1, 2])
def test_a_padded_list_is_refused(width: int) -> None:
    """vLLM pads the lists of requests that share a batch with one for label scores."""
    padded = entry("token_id:5", -0.25, ("token_id:5", -0.25), ("token_id:0", -9999.0))
    with pytest.raises(SpoiledTopList, match="an impossible rival in a top list"):
        openai_scores.sampled_tokens(scoring(sampled=width), [padded], "vllm", "")

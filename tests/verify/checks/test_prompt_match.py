"""The prompt check: made ids against recorded ones, and the first line where nobody vouches for the request."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from logproof.verify.artifact.artifact import Artifact, End, TokenIds
from logproof.verify.artifact.known_request import KnownRequest, MadePrompt
from logproof.verify.judge import judge
from logproof.verify.verdict import Verdict
from verify.builders import (
    PLAIN,
    artifact,
    change,
    draw,
    finding,
    logits,
    own_request,
    policy,
    record,
    replayed,
    requires,
)
from verify.test_judge import NOW

Vouched = Literal["own", "file", "signed"] | None
OWN = MadePrompt(prompts=((1, 2, 3),), by="http://t")
OTHER = MadePrompt(prompts=((1, 2, 3, 4),), by="http://t")
BATCH = MadePrompt(prompts=((9,), (1, 2, 3)), by="http://t")
NONE = MadePrompt(reason="a message holds parts that are not text")


def known(made: Artifact, vouched: Vouched = "own") -> KnownRequest | None:
    """The recorded request, as somebody vouches for it; None where only the record tells of it."""
    return None if vouched is None else msgspec.structs.replace(own_request(made), source=vouched)


def verdict(vouched: Vouched, prompt: MadePrompt | None, level: str = "sampled") -> Verdict:
    """Of a record that is honest in all but, maybe, its prompt ids 1, 2, 3."""
    z = logits(60, 99)
    ids = draw(z, PLAIN, 7)
    made, replay = artifact(record(z, ids, 20)), replayed(record(z, ids, 40))
    rules = policy(requires=requires(level=level))
    return judge(made, replay, rules, NOW, known=known(made, vouched), prompt=prompt)


@pytest.mark.parametrize(
    ("vouched", "prompt", "outcome", "reason", "status", "level"),
    [
        ("own", OWN, "pass", None, "valid", "replayed"),
        ("own", BATCH, "pass", None, "valid", "replayed"),
        ("own", OTHER, "fail", "prompt", "invalid", "none"),
        ("own", NONE, "unknown", "prompt_unmade", "inconclusive", "distribution"),
        ("own", None, "unknown", "prompt_unmade", "inconclusive", "distribution"),
        (None, OWN, "unknown", "request_unknown", "inconclusive", "distribution"),
        (None, OTHER, "fail", "prompt", "invalid", "none"),
        (None, NONE, "unknown", "request_unknown", "inconclusive", "distribution"),
        (None, None, "unknown", "request_unknown", "inconclusive", "distribution"),
    ],
)
def test_only_ids_made_from_the_requesters_own_request_pass(
    vouched: Vouched, prompt: MadePrompt | None, outcome: str, reason: str | None, status: str, level: str
) -> None:
    got = verdict(vouched, prompt)
    assert (finding(got, "prompt").outcome, finding(got, "prompt").reason) == (outcome, reason)
    assert (got.status, got.level) == (status, level)


@pytest.mark.parametrize(
    ("vouched", "prompt", "words"),
    [(None, OWN, "the request is only the record's word"), ("own", NONE, "its ids could not be made")],
)
def test_the_first_line_says_so_also_where_the_policy_is_content(
    vouched: Vouched, prompt: MadePrompt, words: str
) -> None:
    got = verdict(vouched, prompt, "distribution")
    assert (got.status, got.level) == ("valid", "distribution")
    assert words in got.headline
    assert "Not shown: who wrote the text" in got.headline


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ((1, 2), "2 recorded ids, 3 made, different from position 2 on"),
        ((1, 2, 3, 4), "4 recorded ids, 3 made, different from position 3 on"),
        ((7, 1, 2, 3), "4 recorded ids, 3 made, different from position 0 on"),
    ],
)
def test_a_difference_is_told_by_its_place_without_the_text(ids: tuple[int, ...], words: str) -> None:
    z = logits(60, 99)
    made = artifact(record(z, draw(z, PLAIN, 7), 20))
    tokens = TokenIds(prompt_ids=ids, completion_ids=made.tokens.completion_ids)
    cheat = change(made, tokens=tokens, end=End(finish_reason="length"))
    got = judge(cheat, None, policy(), NOW, known=known(cheat), prompt=OWN)
    assert finding(got, "prompt").detail == f"{words}; made from the request sent by this verifier"


@pytest.mark.parametrize("source", ["own", "file", "signed"])
def test_the_detail_says_who_vouches_for_the_request(source: Literal["own", "file", "signed"]) -> None:
    got = verdict(source, OWN)
    words = {"own": "sent by this verifier", "file": "given by the requester", "signed": "signed by the requester"}
    assert words[source] in finding(got, "prompt").detail

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from logproof.verify import verdict as v

CONTEXT = v.Context(time="2026-01-01T00:00:00+00:00", artifact_digest="ab" * 32, model="tiny")


def passed(*tests: str) -> list[v.Finding]:
    return [v.Finding(test=t, outcome="pass", detail="ok") for t in tests]


FAR = ("S0a", "S6", "policy", "S1")
"""What the level `distribution` needs."""
FULL = (*FAR, "request", "prompt", "requires", "S3", "S2", "S4", "seed")


def test_levels() -> None:
    assert v.reached(passed("S0a", "S6")) == "none"
    assert v.reached(passed(*FAR)) == "distribution"
    for vouched in ("request", "prompt", "requires"):
        others = [t for t in ("request", "prompt", "requires") if t != vouched]
        assert v.reached(passed(*FAR, *others, "S3", "S2", "S4", "seed")) == "distribution"
        assert v.reached(passed(*FAR, *others, "S2g", "S4")) == "distribution"
    assert v.reached(passed(*FAR, "request", "prompt", "requires", "S3")) == "sampled"
    assert v.reached(passed(*FAR, "request", "prompt", "requires", "S2g")) == "sampled"
    assert v.reached(passed("S0a", "S6", "S1", "request", "prompt", "requires", "S3")) == "none"
    assert v.reached(passed(*FULL)) == "replayed"
    assert v.reached(passed(*FAR, "request", "prompt", "requires", "S2g", "S4")) == "replayed"
    assert v.reached(passed(*(t for t in FULL if t != "seed"))) == "sampled"


def test_nothing_passes_by_default() -> None:
    """Every proper subset of passes without S1, S3, structure or request ends inconclusive; no finding does too."""
    assert v.decide([], CONTEXT).status == "inconclusive"
    for missing in ("S0a", "S6", "policy", "S1", "request", "prompt", "requires", "S3"):
        rest = [t for t in FULL if t != missing]
        for size in range(len(rest) + 1):
            for some in combinations(rest, size):
                assert v.decide(passed(*some), CONTEXT).status == "inconclusive"


def test_one_failure_is_enough() -> None:
    bad = v.Finding(test="S2", outcome="fail", reason="seed", detail="4 of 9")
    got = v.decide([*passed(*FULL), bad], CONTEXT)
    assert (got.status, got.level, got.exit_code) == ("invalid", "none", 1)
    assert got.reasons == ("the claimed model and seed do not give the recorded tokens: 4 of 9",)
    assert got.headline.startswith("Shown: the claimed model and seed")


def test_the_first_line_says_what_was_not_shown() -> None:
    got = v.decide(passed(*FULL), CONTEXT)
    assert (got.status, got.exit_code, got.reasons) == ("valid", 0, ())
    assert got.headline.startswith("Not shown: on what hardware")
    only = v.decide(passed(*FAR), CONTEXT, require="distribution")
    assert only.status == "valid"
    assert "who wrote the text" in only.headline


def test_distance_alone_is_not_valid() -> None:
    got = v.decide(passed(*FAR), CONTEXT)
    assert (got.status, got.exit_code) == ("inconclusive", 2)
    assert got.reasons == ("reached level distribution, sampled is required",)


def test_missing_evidence_is_named() -> None:
    open_ = v.Finding(test="S1", outcome="unknown", reason="engine_error", detail="HTTP 503")
    got = v.decide([*passed("S0a", "S6"), open_], CONTEXT)
    assert got.reasons == ("the trusted engine failed: HTTP 503",)
    assert got.status == "inconclusive"


def test_every_reason_has_words() -> None:
    assert set(v.Reason.__args__) == set(v.WORDS)
    assert set(v.NOT_SHOWN) == set(v.LEVELS)


def test_many_verdicts() -> None:
    good = v.decide(passed(*FULL), CONTEXT)
    open_ = v.decide([], CONTEXT)
    bad = v.decide([v.Finding(test="S1", outcome="fail", reason="distribution", detail="far")], CONTEXT)
    assert [v.exit_code(one.status for one in s) for s in ([good], [good, open_], [good, open_, bad], [])] == [
        0,
        2,
        1,
        2,
    ]
    assert v.table([bad])[0][:3] == ("abababababab", "invalid", "none")
    assert v.table([good])[0][3] == good.headline


def test_json() -> None:
    document = json.loads(v.encode(v.decide(passed(*FULL), CONTEXT)))
    assert document["status"] == "valid"
    assert len(document["findings"]) == len(FULL)


@pytest.mark.parametrize("status", ["valid", "invalid", "inconclusive"])
def test_exit_codes_are_three(status: str) -> None:
    got = (
        v.Verdict(status=status, level="none", headline="", reasons=(), findings=(), context=CONTEXT)
        if status in ("valid", "invalid", "inconclusive")
        else None
    )
    assert got is not None
    assert got.exit_code in (0, 1, 2)


def test_the_documentation_quotes_every_first_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()
    assert [line for line in (*v.NOT_SHOWN.values(), *v.UNVOUCHED.values()) if line not in page] == []

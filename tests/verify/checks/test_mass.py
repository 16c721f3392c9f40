"""S0c against a slow sampler of these tests' own: which rows processed logprobs can have."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from logproof.verify.artifact.artifact import Artifact, Mode
from logproof.verify.artifact.columns import Columns, make_columns
from logproof.verify.checks import mass, recorded
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Finding
from verify.builders import Array, artifact, bfloat, change, draw, log_softmax, logits, masked, positions, record

replace = msgspec.structs.replace
N = 40
CUTS = [Sampler(1.0, 5), Sampler(0.8, 20), Sampler(1.0, 60), Sampler(1.0, 0, 0.7), Sampler(1.2, 30, 0.9, 0.05)]


def processed(z: Array, sampler: Sampler, k: int) -> Columns:
    """What an engine reports that lists the k best of what its cuts keep, normalised again."""
    ids = draw(z, sampler, 7)
    rows = np.array([log_softmax(masked(row, sampler)) for row in z]).astype(np.float32).astype(np.float64)
    best = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    return make_columns(ids, rows[np.arange(len(z)), ids], best.tolist(), np.take_along_axis(rows, best, 1).tolist())


def stated(columns: Columns, sampler: Sampler, mode: Mode, k: int = 20) -> Artifact:
    """An artifact of these rows; short ones say how many tokens were kept."""
    made = artifact(columns, sampler, k=k)
    assert made.logprobs is not None
    counts = tuple(int(c) for c in columns.counts)
    kept = counts if min(counts) < k else None
    rows = msgspec.structs.replace(positions(columns), kept=kept)
    return change(made, logprobs=replace(made.logprobs, mode=mode), positions=rows)


def found(made: Artifact) -> Finding | None:
    return next((f for f in recorded.check(made).findings if f.test == "S0c"), None)


@pytest.mark.parametrize("sampler", CUTS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [3, 20])
def test_honest_rows_of_either_kind_pass(sampler: Sampler, ties: bool, k: int) -> None:
    """Ties at the cut are kept by the engine, and no row shows how many there are."""
    z = logits(N, 5)
    z = bfloat(z, 0.5) if ties else z
    for columns, mode in ((processed(z, sampler, k), "processed"), (record(z, draw(z, sampler, 7), k), "raw")):
        got = found(stated(columns, sampler, mode, k))
        assert got is not None
        assert (got.outcome, got.reason) == ("note", None), got.detail


@pytest.mark.parametrize("sampler", [Sampler(1.0, 5), Sampler(0.8, 20), Sampler(1.2, 10, 0.9)])
def test_raw_rows_stated_as_processed_fail(sampler: Sampler) -> None:
    z = logits(N, 6)
    got = found(stated(record(z, draw(z, sampler, 7), 20), sampler, "processed"))
    assert got is not None
    assert (got.outcome, got.reason) == ("fail", "kind")
    assert "they look raw" in got.detail
    assert got.statistic["impossible_share"] > 0.5


def test_a_short_row_lists_all_that_was_kept() -> None:
    """Top-p alone: a row of fewer tokens than asked has to sum to 1, a full one need not."""
    z = logits(N, 8)
    sampler = Sampler(1.0, 0, 0.7)
    columns = processed(z, sampler, 10)
    assert 0 < int((columns.counts < 10).sum()) < N
    assert not mass.not_processed(columns, 10, 0).any()
    less = msgspec.structs.replace(columns, logprobs=columns.logprobs - 0.01, sampled_logprobs=columns.sampled_logprobs)
    assert np.array_equal(mass.not_processed(less, 10, 0), columns.counts < 10)


def test_what_was_left_over_is_that_of_ties() -> None:
    """Three entries of top-k 3: a fourth that ties may be unlisted, half a tie may not."""
    tie, half = np.log([0.4, 0.3, 0.15]), np.log([0.4, 0.3, 0.2])
    columns = make_columns([1, 1], [tie[0], half[0]], [[1, 2, 3]] * 2, [tie.tolist(), half.tolist()])
    assert mass.not_processed(columns, 3, 3).tolist() == [False, True]
    assert mass.not_processed(columns, 3, 3, step=0.4).tolist() == [False, False]
    below = make_columns([1], [np.log(0.4)], [[1, 2, 3]], [np.log([0.4, 0.35, 0.25]).tolist()])
    assert mass.not_processed(below, 3, 2).tolist() == [True]
    silent = make_columns([9], [None], [[1, 2]], [np.log([0.4, 0.3]).tolist()])
    assert mass.not_processed(silent, 3, 0).tolist() == [False]


@pytest.mark.parametrize("mode", ["raw", "unknown"])
def test_processed_rows_stated_otherwise_are_told(mode: Mode) -> None:
    got = found(stated(processed(logits(N, 9), Sampler(1.0, 10), 10), Sampler(1.0, 10), mode, 10))
    assert got is not None
    assert (got.outcome, got.reason) == ("note", "kind")
    assert got.detail == f"100.0% of rows sum to 1; {mode} logprobs are stated, they look processed"


def test_where_the_kinds_are_one_there_is_nothing_to_tell() -> None:
    z = logits(N, 4)
    for sampler in (Sampler(1.0), Sampler(0.7), Sampler(0.0, 5)):
        assert found(stated(record(z, draw(z, sampler, 7), 20), sampler, "raw")) is None
    assert found(stated(processed(z, Sampler(1.0, 5), 20), Sampler(1.0, 5), "constrained")) is None

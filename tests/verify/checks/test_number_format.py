"""Attacks by number formats, widths and vocabularies: what a record says of its own numbers makes no verdict easier."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from logproof.verify.artifact.artifact import Artifact, Numerics, artifact_columns
from logproof.verify.artifact.columns import Columns, make_columns, to_fixed
from logproof.verify.policy import Policy
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Verdict
from verify.builders import (
    PLAIN,
    VOCAB,
    Array,
    artifact,
    bfloat,
    change,
    draw,
    finding,
    judged,
    log_softmax,
    logits,
    masked,
    noisy,
    policy,
    positions,
    record,
    replayed,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
replace = msgspec.structs.replace
N = 120
Z = logits(N, 99)


def verdict(made: Artifact, z: Array = Z, rules: Policy | None = None, vocab: int | None = VOCAB) -> Verdict:
    """The verdict where the trusted engine runs the model of these logits."""
    answer = replayed(record(z, list(made.tokens.completion_ids or ()), 40), vocab_size=vocab)
    return judged(made, answer, policy() if rules is None else rules, NOW)


def numbers(made: Artifact, **fields: object) -> Artifact:
    assert made.logprobs is not None
    return change(made, logprobs=replace(made.logprobs, **fields))


def claiming(made: Artifact, **fields: object) -> Artifact:
    return change(made, claim=replace(made.claim, model=replace(made.claim.model, **fields)))


def cheaper_weights() -> Artifact:
    z = noisy(Z, 1, 0.05).astype(np.float32).astype(np.float64)
    return artifact(record(z, draw(z, PLAIN, 7), 20))


def hotter() -> Artifact:
    return artifact(record(Z, draw(Z, Sampler(1.15), 7), 20), PLAIN)


@pytest.mark.parametrize("cheat", [cheaper_weights, hotter])
@pytest.mark.parametrize("step", [0.5, 0.1, 1e-3, 1e-5])
def test_a_claimed_step_hides_nothing(cheat: type, step: float) -> None:
    assert verdict(cheat()).status == "invalid"
    got = verdict(numbers(cheat(), step=step))
    assert (got.status, finding(got, "S0a").reason) == ("invalid", "malformed")
    assert "logprobs.step" in finding(got, "S0a").detail


@pytest.mark.parametrize("denominator", [1, 2, 16, 1023])
def test_a_coarse_unit_hides_nothing(denominator: int) -> None:
    rows = to_fixed(artifact_columns(hotter()), denominator)
    made = numbers(artifact(rows, PLAIN), format="fixed", denominator=denominator, step=0.5 / denominator)
    got = verdict(made)
    assert (got.status, finding(got, "S0a").reason) == ("invalid", "malformed")
    assert "denominator" in finding(got, "S0a").detail


def test_a_policy_may_take_a_coarser_unit() -> None:
    rows = to_fixed(record(Z, draw(Z, PLAIN, 7), 20), 512)
    made = numbers(artifact(rows), format="fixed", denominator=512, step=0.5 / 512)
    assert verdict(made).status == "invalid"
    assert verdict(made, rules=policy(least_denominator=512)).status == "valid"
    assert verdict(numbers(made, step=0.6 / 512), rules=policy(least_denominator=512)).status == "invalid"


@pytest.mark.parametrize(
    ("step", "status"), [(0.0, "valid"), (0.49 / 1024, "valid"), (0.5 / 1024, "valid"), (0.51 / 1024, "invalid")]
)
def test_a_fixed_format_rounds_by_half_a_unit(step: float, status: str) -> None:
    rows = to_fixed(record(Z, draw(Z, PLAIN, 7), 20), 1024)
    assert verdict(numbers(artifact(rows), format="fixed", denominator=1024, step=0.5 / 1024)).status == "valid"
    got = finding(verdict(numbers(artifact(rows), format="fixed", denominator=1024, step=step)), "S0a")
    assert (got.outcome == "pass") == (status == "valid")


def test_a_wire_that_prints_float32_shortly_is_honest() -> None:
    """Half a unit in the last place of the largest value: what a wire of eight digits costs."""
    made = artifact(record(Z, draw(Z, PLAIN, 7), 20))
    deepest = float(np.abs(artifact_columns(made).logprobs).max())
    half = float(np.spacing(np.float32(deepest))) / 2.0
    assert verdict(numbers(made, step=half)).status == "valid"
    assert verdict(numbers(made, step=2.1 * half)).status == "invalid"


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("grid", [2.0**-5, 2.0**-8])
def test_float32_is_not_claimed_of_rounded_logits(fixed: bool, grid: float) -> None:
    """The engine computed in bfloat16 or float16; the trusted one agrees with it, so that no other test speaks."""
    z = bfloat(logits(N, 9, spread=4.0), grid)
    rows = record(z, draw(z, PLAIN, 7), 20)
    made = artifact(to_fixed(rows) if fixed else rows)
    if fixed:
        made = numbers(made, format="fixed", denominator=1024, step=0.5 / 1024)
    got = verdict(made, z)
    assert (got.status, finding(got, "S0b").reason) == ("invalid", "lattice")
    for dtype in (None, "bfloat16", "int4"):  # a policy of a float32 executor does not hear of another
        other = change(made, claim=replace(made.claim, numerics=Numerics(dtype=dtype)))
        assert verdict(other, z).status == "invalid"


def test_a_short_record_of_float32_is_not_called_rounded() -> None:
    """Two rows of few entries may lie on a lattice by chance."""
    rows = make_columns([1, 2], [-0.5, -1.0], [[1], [2]], [[-0.5], [-1.0]])
    made = artifact(rows, k=1)
    assert not any(f.test == "S0b" and f.outcome == "fail" for f in judged(made, None, None, NOW).findings)


CUT = Sampler(0.8, 0, 0.8)


def uncut() -> Artifact:
    """Sampled without the top-p that is claimed."""
    return artifact(record(Z, draw(Z, Sampler(0.8), 7), 20), CUT)


@pytest.mark.parametrize("size", [None, 10**6, 2**31, VOCAB + 1, VOCAB - 1])
def test_the_vocabulary_is_the_trusted_engines(size: int | None) -> None:
    assert verdict(uncut()).status == "invalid"
    assert verdict(claiming(uncut(), vocab_size=size)).status == "invalid"
    honest = claiming(artifact(record(Z, draw(Z, CUT, 7), 20), CUT), vocab_size=size)
    got = verdict(honest)
    assert got.status == ("valid" if size is None else "invalid"), got.reasons
    if size is not None:
        assert finding(got, "S0a").reason == "vocabulary"


@pytest.mark.parametrize("size", [None, 10**6, VOCAB])
def test_without_a_trusted_vocabulary_nothing_passes_that_needs_one(size: int | None) -> None:
    honest = claiming(artifact(record(Z, draw(Z, CUT, 7), 20), CUT), vocab_size=size)
    got = verdict(honest, vocab=None)
    assert got.status == "inconclusive"
    assert {f.reason for f in got.findings if f.test in ("S2", "S3", "S4")} == {"vocabulary_unknown"}
    assert verdict(honest, vocab=None, rules=policy(vocab_size=VOCAB)).status == (
        "invalid" if size == 10**6 else "valid"
    )
    warm = verdict(
        claiming(artifact(record(Z, draw(Z, Sampler(0.8), 7), 20), Sampler(0.8)), vocab_size=size), vocab=None
    )
    outcomes = {f.test: f.reason for f in warm.findings if f.test in ("S2", "S3", "S4")}
    assert outcomes == {"S2": None, "S3": "vocabulary_unknown", "S4": None}
    plain = claiming(artifact(record(Z, draw(Z, PLAIN, 7), 20)), vocab_size=size)
    assert verdict(plain, vocab=None).status == "valid"  # at temperature 1 without cuts it enters no number


def test_a_policy_about_another_model_says_nothing_of_a_vocabulary() -> None:
    other = claiming(artifact(record(Z, draw(Z, PLAIN, 7), 20)), id="another", vocab_size=VOCAB + 50)
    assert verdict(other).status == "inconclusive"


def test_an_id_beyond_the_trusted_vocabulary_is_invalid() -> None:
    made = claiming(artifact(record(Z, draw(Z, PLAIN, 7), 20)), vocab_size=None)
    assert finding(verdict(made, vocab=100), "S0a").reason == "token_out_of_range"


def narrowed(columns: Columns, width: int = 1) -> Artifact:
    rows = positions(columns.narrow(width))
    return change(artifact(columns), positions=replace(rows, kept=(width,) * len(columns)))


@pytest.mark.parametrize("width", [1, 19])
def test_raw_rows_are_as_wide_as_was_asked(width: int) -> None:
    got = verdict(narrowed(record(Z, draw(Z, PLAIN, 7), 20), width))
    assert (got.status, finding(got, "S0a").reason) == ("invalid", "malformed")


def test_a_small_vocabulary_explains_short_rows() -> None:
    z = logits(N, 5, vocab=12)
    made = artifact(record(z, draw(z, PLAIN, 7), 12), vocab=12)
    rows = replace(positions(artifact_columns(made)), kept=(12,) * N)
    made = change(made, positions=rows)
    assert verdict(made, z, vocab=12).status == "valid"
    assert verdict(made, z, vocab=None).status == "inconclusive"
    assert verdict(claiming(made, vocab_size=None), z, vocab=None).status == "invalid"
    assert verdict(made, z, vocab=VOCAB).status == "invalid"


def of_mode(sampler: Sampler, mode: str, width: int, **leaves: object) -> Artifact:
    """Processed rows of these cuts, at most `width` entries each, of 20 that were asked."""
    ids = draw(Z, sampler, 7)
    z = np.array([masked(row, sampler) for row in Z])
    rows = log_softmax(z).astype(np.float32).astype(np.float64)
    best = np.argsort(-rows, axis=1, kind="stable")[:, :width]
    columns = make_columns(ids, rows[np.arange(N), ids], best.tolist(), np.take_along_axis(rows, best, 1).tolist())
    made = artifact(columns, sampler)
    made = change(
        made,
        positions=replace(positions(columns), kept=tuple(int(c) for c in columns.counts)),
        sampling=replace(made.sampling, **leaves),
    )
    return numbers(made, mode=mode)


@pytest.mark.parametrize(
    ("sampler", "mode", "width", "leaves", "outcome"),
    [
        (Sampler(1.0, 5), "processed", 20, {}, "pass"),
        (Sampler(1.0, 5), "processed", 4, {}, "unknown"),
        (Sampler(1.0, 0, 0.7), "processed", 20, {}, "pass"),
        (Sampler(1.0, 0, 1.0, 0.1), "processed", 20, {}, "pass"),
        (Sampler(0.7), "processed", 10, {}, "unknown"),
        (Sampler(0.7), "processed", 10, {"allowed_ids": tuple(range(10))}, "pass"),
        (Sampler(0.7), "processed", 10, {"allowed_ids": None}, "unknown"),
        (Sampler(0.7), "processed", 10, {"logit_bias": {"5": -100.0}}, "unknown"),
        (Sampler(0.7), "constrained", 10, {"structured_output": "ab" * 32}, "pass"),
        (Sampler(0.7), "constrained", 10, {"structured_output": ""}, "unknown"),
        (Sampler(0.7), "unknown", 10, {}, "unknown"),
    ],
)
def test_short_rows_are_explained_by_claimed_cuts_or_a_constraint(
    sampler: Sampler, mode: str, width: int, leaves: dict[str, object], outcome: str
) -> None:
    got = verdict(of_mode(sampler, mode, width, **leaves))
    assert finding(got, "S0a").outcome == outcome, finding(got, "S0a").detail
    if outcome == "unknown":
        assert finding(got, "S0a").reason == "rows_short"
        assert got.status != "valid"

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.verify.artifact.artifact import Artifact, ChoiceRef, Positions, RecordedUsage, Seed, Signature, TokenIds
from logproof.verify.artifact.columns import make_columns
from logproof.verify.checks.case import TrustedFacts
from logproof.verify.checks.structure import faults
from verify.builders import artifact, change, logits, quick, record

replace = msgspec.structs.replace


@pytest.fixture
def made() -> Artifact:
    return artifact(record(logits(4, 1), [3, 1, 4, 1], 3), k=3)


def test_a_sound_artifact_has_no_fault(made: Artifact) -> None:
    assert faults(made) == []
    assert faults(replace(made, seal=None)) == []


def rows(made: Artifact, **fields: object) -> Artifact:
    assert made.positions is not None
    return change(made, positions=replace(made.positions, **fields))


def spec(made: Artifact, **fields: object) -> Artifact:
    assert made.logprobs is not None
    return change(made, logprobs=replace(made.logprobs, **fields))


def row0(made: Artifact, ids: tuple[int, ...], values: tuple[float, ...]) -> Artifact:
    assert made.positions is not None
    return rows(made, ids=(ids, *made.positions.ids[1:]), logprobs=(values, *made.positions.logprobs[1:]))


def tokens(made: Artifact, **fields: object) -> Artifact:
    return change(made, tokens=replace(made.tokens, **fields))


def settings(made: Artifact, **fields: object) -> Artifact:
    return change(made, sampling=replace(made.sampling, **fields))


Case = tuple[str, Callable[[Artifact], Artifact], str, str]
CASES: list[Case] = [
    ("digest", lambda a: replace(a, artifact_id="other"), "hash_mismatch", "seal.digest"),
    ("not finite", lambda a: replace(a, request=replace(a.request, body=float("inf"))), "hash_mismatch", "seal"),
    ("choice", lambda a: change(a, choice=ChoiceRef(n=1, index=1)), "malformed", "choice"),
    ("negative id", lambda a: tokens(a, completion_ids=(-1, 1, 4, 1)), "token_out_of_range", "completion_ids[0]"),
    ("id past vocab", lambda a: tokens(a, prompt_ids=(1, 200)), "token_out_of_range", "prompt_ids[1]"),
    ("id past 2**31", lambda a: tokens(a, prompt_ids=(2**63,)), "token_out_of_range", "prompt_ids[0]"),
    ("row id past vocab", lambda a: row0(a, (1, 2, 999), (-1.0, -2.0, -3.0)), "token_out_of_range", "[0].ids"),
    ("empty completion", lambda a: tokens(a, completion_ids=()), "malformed", "completion_ids"),
    ("empty prompt", lambda a: tokens(a, prompt_ids=()), "malformed", "prompt_ids"),
    (
        "vocab",
        lambda a: change(a, claim=replace(a.claim, model=replace(a.claim.model, vocab_size=0))),
        "malformed",
        "vocab_size",
    ),
    (
        "huge vocab",
        lambda a: change(a, claim=replace(a.claim, model=replace(a.claim.model, vocab_size=10**30))),
        "malformed",
        "vocab_size",
    ),
    (
        "many choices",
        lambda a: change(a, choice=ChoiceRef(n=1 << 20, index=0)),
        "malformed",
        "choice",
    ),
    (
        "usage",
        lambda a: change(a, end=replace(a.end, usage=RecordedUsage(completion=9))),
        "inconsistent_usage",
        "usage.completion",
    ),
    ("temperature", lambda a: settings(a, temperature=-1.0), "malformed", "temperature"),
    ("top_p", lambda a: settings(a, top_p=0.0), "malformed", "top_p"),
    ("min_p", lambda a: settings(a, min_p=1.5), "malformed", "min_p"),
    (
        "seed derivation",
        lambda a: settings(a, seed=Seed(value=1, origin="derived")),
        "malformed",
        "sampling.seed",
    ),
    ("no spec", lambda a: change(a, logprobs=None), "malformed", "logprobs"),
    ("k", lambda a: spec(a, k=-1), "malformed", "logprobs.k"),
    ("k beyond limits", lambda a: spec(a, k=2000), "malformed", "logprobs.k"),
    ("k not kept", lambda a: spec(a, k=5), "malformed", "has 3 entries, 5 were asked"),
    ("denominator", lambda a: spec(a, denominator=1024), "malformed", "denominator"),
    ("fixed without denominator", lambda a: spec(a, format="fixed"), "malformed", "denominator"),
    ("step", lambda a: spec(a, step=1.0), "malformed", "step"),
    ("one row short", lambda a: rows(a, sampled=(None,) * 3), "malformed", "positions"),
    ("kept of other length", lambda a: rows(a, kept=(3,)), "malformed", "positions"),
    ("kept nothing", lambda a: rows(a, kept=(0, 3, 3, 3)), "malformed", "kept"),
    ("row lengths", lambda a: row0(a, (1, 2, 5), (-1.0, -2.0)), "malformed", "3 ids and 2 logprobs"),
    ("twice", lambda a: row0(a, (1, 1, 2), (-1.0, -2.0, -3.0)), "malformed", "holds an id twice"),
    ("too wide", lambda a: row0(a, tuple(range(10, 18)), (-9.0,) * 8), "malformed", "has 8 entries, 3 were asked"),
    ("positive", lambda a: row0(a, (1, 2, 5), (0.5, -2.0, -3.0)), "malformed", "above 0"),
    ("filler", lambda a: row0(a, (1, 2, 5), (-1.0, -2.0, -9999.0)), "malformed", "filler"),
    ("mass", lambda a: row0(a, (1, 2, 5), (-0.5, -0.5, -3.0)), "malformed", "more than 1"),
    ("format", lambda a: row0(a, (1, 2, 5), (-1.0, -2.0, -3.1)), "malformed", "float32"),
    ("sampled value", lambda a: row0(a, (3, 2, 5), (-1.0, -2.0, -3.0)), "malformed", "lists -1.0"),
]


@pytest.mark.parametrize(("edit", "reason", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_broken_rule_is_named(
    made: Artifact, edit: Callable[[Artifact], Artifact], reason: str, words: str
) -> None:
    found = faults(edit(made))
    assert any(f.reason == reason and words in f"{f.where} {f.detail}" for f in found), found


def test_an_infinite_logprob_is_malformed(made: Artifact) -> None:
    """It cannot even be sealed, so it comes with no seal or a wrong one."""
    assert made.positions is not None
    bad = replace(made.positions, logprobs=((-1.0, -2.0, float("-inf")), *made.positions.logprobs[1:]))
    open_ = replace(made, positions=bad, seal=None)
    assert [(f.reason, f.where) for f in faults(open_)][:1] == [("malformed", "positions[0].logprobs")]


def test_short_rows_are_sound_where_fewer_were_kept() -> None:
    c = make_columns([1, 1], [-0.5, -0.25], [[1, 2], [1]], [[-0.5, -1.0], [-0.25]])
    assert faults(spec(rows(artifact(c, k=3), kept=(2, 1)), mode="processed")) == []
    assert len(faults(spec(artifact(c, k=3), mode="processed"))) == 2
    assert len(faults(rows(artifact(c, k=3), kept=(2, 1)))) == 2


def test_fixed_format() -> None:
    c = make_columns([1], [-0.5], [[1, 2]], [[-0.5, -1.0009765625]])
    made = spec(artifact(c, k=2), format="fixed", denominator=1024, step=0.5 / 1024)
    assert faults(made) == []
    assert [f.where for f in faults(spec(made, denominator=10))] == ["logprobs.denominator", "positions[0].logprobs"]
    for wild in (2**41, 10**400):
        assert "logprobs.denominator" in [f.where for f in faults(spec(made, denominator=wild))]


def test_rounded_logprobs_may_exceed_zero_and_one_by_their_step() -> None:
    c = make_columns([1], [0.0], [[1, 2]], [[0.0, -6.5]])
    assert len(faults(artifact(c, k=2))) == 1
    coarse = spec(artifact(c, k=2), format="fixed", denominator=256, step=0.5 / 256)
    assert faults(coarse, TrustedFacts(least_denominator=256)) == []


def test_texts_only_is_sound() -> None:
    c = record(logits(1, 1), [3], 3)
    made = change(
        artifact(c, k=3), tokens=TokenIds(prompt_ids=None, completion_ids=None), positions=None, logprobs=None
    )
    assert faults(made) == []
    assert np.isfinite(c.sampled_logprobs).all()


def test_a_false_signature_is_a_hash_mismatch(made: Artifact) -> None:
    assert made.seal is not None
    fake = Signature(alg="ed25519", key_id="00" * 32, value="00" * 64)
    bad = replace(made, seal=replace(made.seal, signature=fake))
    assert [f.reason for f in faults(bad)] == ["hash_mismatch"]


values = st.sampled_from([-0.5, -1.5, -0.1, -30.0, 0.0, 1e-7, 0.3, -9999.0, math.nan, -math.inf, 0.1])


@quick
@given(
    st.lists(st.lists(values, min_size=2, max_size=2), min_size=1, max_size=3), st.sampled_from([0.0, 1e-9, 0.1, 0.5])
)
def test_values_are_judged_as_the_plain_rules_say(table: list[list[float]], step: float) -> None:
    """Checked all at once or row by row, a fault is named exactly where a rule is broken."""
    n = len(table)
    base = artifact(record(logits(n, 1), [5] * n, 2), k=2)
    told = Positions(sampled=(None,) * n, ids=((1, 2),) * n, logprobs=tuple(map(tuple, table)))
    assert base.logprobs is not None
    made = replace(base, positions=told, seal=None, logprobs=replace(base.logprobs, step=step))
    wrong: set[str] = set()
    real = [abs(v) for row in table for v in row if math.isfinite(v) and v > -9000.0]
    half = float(np.spacing(np.float32(max(real, default=0.0)))) / 2.0
    if step > half * (1 + 1e-9):
        wrong, step = {"logprobs.step"}, half * (1 + 1e-9)
    for i, row in enumerate(table):
        finite = all(map(math.isfinite, row))
        high = finite and max(row) > step + 1e-6
        filler = finite and min(row) <= -9000.0
        heavy = finite and sum(math.exp(min(v, 0.0)) for v in row) > 1.001 * math.exp(step)
        odd = finite and any(float(np.float32(v)) != v for v in row)
        wrong |= {f"positions[{i}].logprobs"} if not finite or high or filler or heavy or odd else set()
    assert {f.where for f in faults(made)} == wrong


def test_an_absurd_step_is_a_fault_and_no_crash(made: Artifact) -> None:
    assert [f.where for f in faults(spec(made, step=1e9))] == ["logprobs.step"]

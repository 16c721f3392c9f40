"""Parity: whether two dialects give the same numbers for the same tasks of the same engine.

Run A is compared with run B, call by call (compare.py). A third run, over the first dialect again, measures what the
engine's own noise is: A against the control.

Verdict: `agree` when nothing failed, every score is equal, and no difference exceeds its limit. Input tokens are
held to `tolerance`, 0 by default: prompt scores are computed alike on every wire. Labels and sampled tokens come
out of decoding, whose last digits follow batch and cache on any engine, so their limit is at least
DECODE_TOLERANCE; an engine of lower precision than float32 needs a control or a larger tolerance.
`differ` otherwise, unless the control shows the same kinds of difference at the same size: then `noise`, since
the engine disagrees with itself as much.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from logproof.eval.report.compare import Channel, Comparison, compare
from logproof.eval.report.report import Report, build
from logproof.files import write_atomic
from logproof.store.reader import StoreReader
from logproof.store.run_store import RunStore

Verdict = Literal["agree", "noise", "differ"]

FILE = "parity.json"
RUN_A, RUN_B, CONTROL, CONTROL_B = "a", "b", "control", "control-b"
"""Directories of the runs below that of a parity check."""

DECODE_TOLERANCE = 1e-4
"""Limit in nat for decoded logprobs: float32 decoding was measured to vary by up to 2e-5."""


class RunScores(msgspec.Struct, frozen=True):
    """One run's scores. metrics: task -> metric -> value. failed: task -> samples."""

    dialect: str
    metrics: dict[str, dict[str, float]]
    failed: dict[str, int]


class Parity(msgspec.Struct, frozen=True):
    """The whole comparison. pair: of A and B. noise: of A and its control, None without one. tolerance: nat.

    noise_b: of B and a second run of it, where B is another endpoint.
    """

    a: RunScores
    b: RunScores
    pair: Comparison
    verdict: Verdict
    tolerance: float
    reasons: tuple[str, ...]
    control: RunScores | None = None
    noise: Comparison | None = None
    noise_b: Comparison | None = None

    @property
    def exit_code(self) -> int:
        """0 agree, 1 differ, 2 noise."""
        return {"agree": 0, "differ": 1, "noise": 2}[self.verdict]


def run_scores(report: Report) -> RunScores:
    """The scores of one run."""
    return RunScores(
        report.dialect,
        {t.task: {name: rate.value for name, rate in t.metrics.items()} for t in report.tasks},
        {t.task: t.failed for t in report.tasks},
    )


def parity_of(root: Path, tolerance: float) -> Parity:
    """Compare the runs A, B and, where they are, their controls below a directory. Raises StoreError."""
    with RunStore.read(root / RUN_A) as one, RunStore.read(root / RUN_B) as two:
        a, b = run_scores(build(one)), run_scores(build(two))
        control, noise = _second_run(root / CONTROL, one)
        _, noise_b = _second_run(root / CONTROL_B, two)
        return msgspec.structs.replace(judge(a, b, compare(one, two), tolerance, control, noise), noise_b=noise_b)


def _second_run(path: Path, first: StoreReader) -> tuple[RunScores | None, Comparison | None]:
    """Scores of a second run, and how far it is from the first."""
    if not path.is_dir():
        return None, None
    with RunStore.read(path) as second:
        return run_scores(build(second)), compare(first, second)


def write_parity(parity: Parity, root: Path) -> None:
    """Write parity.json into the directory of a parity check. Raises StoreError."""
    write_atomic(root / FILE, msgspec.json.format(msgspec.json.encode(parity), indent=2) + b"\n")


def judge(
    a: RunScores,
    b: RunScores,
    pair: Comparison,
    tolerance: float,
    control: RunScores | None = None,
    noise: Comparison | None = None,
) -> Parity:
    """The verdict over compared runs."""
    reasons = _reasons(a, b, pair, tolerance)
    verdict: Verdict = "agree" if not reasons else "differ"
    if reasons and noise is not None and control is not None and _explained(pair, noise, a, b, control):
        verdict = "noise"
    return Parity(a, b, pair, verdict, tolerance, tuple(reasons), control, noise)


def _reasons(a: RunScores, b: RunScores, pair: Comparison, tolerance: float) -> list[str]:
    reasons = [f"{n} failed samples of {task} over {s.dialect}" for s in (a, b) for task, n in s.failed.items() if n]
    if pair.missing:
        reasons.append(f"{pair.missing} samples were scored in one run only")
    if not pair.samples:
        reasons.append("no sample was scored in both runs: nothing is compared")
    reasons += _unequal_scores(a, b)
    decode = max(tolerance, DECODE_TOLERANCE)
    limits = (("input", pair.input, tolerance), ("labels", pair.labels, decode), ("sampled", pair.sampled, decode))
    for name, channel, limit in limits:
        if not channel.within(limit):
            reasons.append(f"{name}: {_in_words(channel)}")
    return reasons


def _in_words(channel: Channel) -> str:
    parts = {
        "positions with other ids": channel.differing_ids,
        "positions with other texts": channel.differing_texts,
        "calls that cannot be compared": channel.unlike,
    }
    words = [f"{n} {what}" for what, n in parts.items() if n]
    most = channel.max_difference
    return "; ".join([*words, "no logprob compared" if most is None else f"max |difference| {most:.3g} nat"])


def _unequal_scores(a: RunScores, b: RunScores) -> list[str]:
    unequal = []
    for task, metrics in a.metrics.items():
        other = b.metrics.get(task, {})
        for metric in metrics.keys() | other.keys():
            one, two = metrics.get(metric), other.get(metric)
            if one is None or two is None or (metric != "label_mass" and one != two):
                unequal.append(f"{task} {metric}: {one} and {two}")
    return sorted(unequal)


def _explained(pair: Comparison, noise: Comparison, a: RunScores, b: RunScores, control: RunScores) -> bool:
    """Whether A and its control differ in the same ways, at least as much."""
    failed = any(n for s in (a, b) for n in s.failed.values())
    if failed or pair.missing or not pair.samples:
        return False
    if _unequal_scores(a, b) and not _unequal_scores(a, control):
        return False
    return all(
        _covers(seen, own)
        for seen, own in ((pair.input, noise.input), (pair.labels, noise.labels), (pair.sampled, noise.sampled))
    )


def _covers(seen: Channel, own: Channel) -> bool:
    if seen.unlike and not own.unlike:
        return False
    other_tokens = bool(seen.differing_ids or seen.differing_texts)
    return (seen.max_difference or 0.0) <= (own.max_difference or 0.0) and (not other_tokens or bool(own.differing_ids))


def not_compared(pair: Comparison) -> list[str]:
    """What both runs hold and nobody could compare, in words."""
    parts = []
    for name, channel in (("input", pair.input), ("label", pair.labels), ("sampled", pair.sampled)):
        for count, what in (
            (channel.unknown_meaning, "logprobs, whose meaning a wire does not say"),
            (channel.unknown_ids, "ids, which a wire does not give"),
            (channel.unknown_texts, "texts, which a wire does not give"),
            (channel.texts_alone, "replies beyond their text: a wire gives no tokens"),
        ):
            parts += [f"{count} {name} {what}"] if count else []
    return parts

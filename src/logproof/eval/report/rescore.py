"""Rescoring: new scores from stored replies, without any network, beside the first ones.

The items come back from what the run stored (prompts, spans, labels, right answers), so neither data files nor
a tokenizer are needed. With `extract`, generation tasks also get the metric `exact_custom`: the last match of
that regular expression (its first group, where it has one), compared by value with the right number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from logproof.errors import LogproofError, StoreError, UsageError, clip
from logproof.eval.plan.method import TaskMethod, TaskPlan
from logproof.eval.report.report import Report, build
from logproof.eval.score import answers
from logproof.eval.score.option_span import Span
from logproof.eval.score.outcome import Contexts, Outcome, score
from logproof.eval.score.stored_calls import request_of, response_of
from logproof.eval.tasks.task import ClpItem, GenItem, Item, PplItem, Settings
from logproof.ir.request import Request
from logproof.ir.response import Response
from logproof.store.digest import digest
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, SampleRecord, Scorer, ScoreRecord
from logproof.store.run_store import RunStore

_T = TypeVar("_T", bound=msgspec.Struct)

SCORING_VERSION = 1
"""Goes up whenever the same replies would give other scores."""


EXTRACTED = "exact_custom"
"""The metric of an extractor."""


class Rescoring(msgspec.Struct, frozen=True):
    """What a scorer does beyond the task's own metrics. extract: a regular expression, or None."""

    extract: str | None = None

    def scorer(self, name: str) -> Scorer:
        """Its record. Raises UsageError for an expression that does not compile."""
        if self.extract is not None:
            _compiled(self.extract)
        config = {"scoring_version": SCORING_VERSION, "extract": self.extract}
        return Scorer(digest=digest({"name": name, **config}), name=name, config=config)


class RescoreResult(msgspec.Struct, frozen=True):
    """What a rescoring did. report: over the new scores. samples: scored again; extracted: of them, with EXTRACTED."""

    report: Report
    samples: int
    extracted: int


def rescore_run(run: Path, rescoring: Rescoring, name: str) -> RescoreResult:
    """Score a run's stored replies again, into its store under a name. Raises UsageError, StoreError, StoreLocked."""
    scorer = rescoring.scorer(name)
    with RunStore.amend(run) as store:
        store.put_scorer(scorer)
        samples = extracted = 0
        for record in rescored(store, rescoring, scorer):
            store.put_score(record)
            samples += 1
            extracted += EXTRACTED in record.scores
        store.flush()
        return RescoreResult(build(store, scorer.digest), samples, extracted)


def rescored(reader: StoreReader, rescoring: Rescoring, scorer: Scorer) -> Iterator[ScoreRecord]:
    """A score record of every sample that was scored before; failed ones have no replies and stay as they are."""
    methods = reader.provenance.config.get("ways")
    for sample in reader.samples():
        if sample.status == "ok":
            method = msgspec.convert(methods[sample.task] if isinstance(methods, dict) else None, TaskMethod)
            yield _one(sample, list(reader.calls(sample.key)), method, rescoring, scorer.digest)


def _one(
    sample: SampleRecord, calls: Sequence[CallRecord], method: TaskMethod, rescoring: Rescoring, scorer: str
) -> ScoreRecord:
    try:
        outcome = rescore_sample(sample, calls, method, rescoring)
    except LogproofError as error:
        reason = f"{type(error).__name__}: {error.message}"
        return ScoreRecord(sample_key=sample.key, scorer=scorer, status="failed", reason=reason)
    output = {**outcome.output, "flags": list(outcome.flags)}
    return ScoreRecord(sample_key=sample.key, scorer=scorer, status="ok", scores=outcome.scores, output=output)


def rescore_sample(
    sample: SampleRecord, calls: Sequence[CallRecord], method: TaskMethod, rescoring: Rescoring
) -> Outcome:
    """The outcome of one sample from its stored calls. Raises StoreError where they are damaged or incomplete."""
    ok = {call.part: call for call in calls if call.status == "ok"}
    requests = {part: request_of(call) for part, call in ok.items()}
    replies = {part: response_of(call) for part, call in ok.items()}
    output = sample.output if isinstance(sample.output, dict) else {}
    item, label_ids, contexts = _item(sample, output, requests)
    outcome = score(item, TaskPlan("", method, Settings(), label_ids), replies, contexts)
    if rescoring.extract is not None and isinstance(item, GenItem):
        return _with_custom(outcome, replies["text"], item.gold, rescoring.extract)
    return outcome


def _item(
    sample: SampleRecord, output: Mapping[str, object], requests: Mapping[str, Request]
) -> tuple[Item, Mapping[str, int], Contexts]:
    if "option 0" in requests:
        return _ppl_item(sample, output, requests)
    if "labels" in requests:
        return _clp_item(sample, output, requests["labels"])
    if "text" not in requests:
        raise StoreError(f"no stored calls of sample {sample.key}")
    stop = requests["text"].sampling.stop or ()
    return GenItem(_text(requests["text"]), stop, 1, str(sample.gold)), {}, Contexts()


def _ppl_item(
    sample: SampleRecord, output: Mapping[str, object], requests: Mapping[str, Request]
) -> tuple[Item, Mapping[str, int], Contexts]:
    options = [_text(requests[f"option {i}"]) for i in range(sum(p.startswith("option ") for p in requests))]
    own = _convert(output, _StoredSpan)
    context, neutral = options[0][: own.context_chars], None
    if own.neutral is not None and "neutral 0" in requests:
        neutral = _text(requests["neutral 0"])[: own.neutral.context_chars]
    continuations = tuple(o[own.context_chars :] for o in options)
    item = PplItem(context, tuple(c.strip() for c in continuations), continuations, _gold(sample), neutral)
    return item, {}, Contexts(span=own.span, neutral_span=own.neutral.span if own.neutral is not None else None)


class _Neutral(msgspec.Struct):
    span: Span
    context_chars: int


class _StoredSpan(msgspec.Struct):
    span: Span
    context_chars: int
    neutral: _Neutral | None = None


class _StoredLabels(msgspec.Struct):
    labels: dict[str, float | None]
    label_ids: list[int] | None = None


def _clp_item(
    sample: SampleRecord, output: Mapping[str, object], request: Request
) -> tuple[Item, Mapping[str, int], Contexts]:
    own = _convert(output, _StoredLabels)
    names = tuple(own.labels)
    ids = dict(zip(names, own.label_ids, strict=True)) if own.label_ids is not None else {}
    return ClpItem(_text(request), names, _gold(sample)), ids, Contexts()


def _convert(output: Mapping[str, object], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(output, kind)
    except msgspec.ValidationError as error:
        raise StoreError(f"a stored sample lacks what rescoring needs: {error}") from None


def _gold(sample: SampleRecord) -> int:
    if not isinstance(sample.gold, int):
        raise StoreError(f"sample {sample.key} has no right option")
    return sample.gold


def _text(request: Request) -> str:
    messages = request.input.messages
    return request.input.text or (messages[0].text if messages else "")


def _with_custom(outcome: Outcome, reply: Response, gold: str, pattern: str) -> Outcome:
    answer = _custom(pattern, reply.text)
    extracted = outcome.output["extracted"]
    output = {**outcome.output, "extracted": {**(extracted if isinstance(extracted, dict) else {}), "custom": answer}}
    scores = {**outcome.scores, EXTRACTED: float(answers.equal(answer, gold))}
    return msgspec.structs.replace(outcome, scores=scores, output=output)


def _custom(pattern: str, text: str) -> str | None:
    last = None
    for match in _compiled(pattern).finditer(text[: answers.MAX_TEXT]):
        last = match
    if last is None:
        return None
    return last[1] if last.re.groups else last[0]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--extract is no regular expression: {clip(str(error), 120)}") from None

"""Compare two stored runs of the same tasks, call by call.

They are walked side by side, in dataset order. Over all calls of the samples that both scored:
    input     prompt tokens: ids equal (where both wires report them), texts equal, |difference| of logprobs
    labels    label logprobs of clp tasks
    sampled   generated tokens: ids, texts, |difference| of logprobs where their meanings are known and alike
parity.py judges what is counted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from logproof.errors import StoreError
from logproof.eval.report.spread import Spread
from logproof.eval.score.stored_calls import request_of, response_of
from logproof.ir.request import Request
from logproof.ir.response import Choice, Floats, Response, Tokens
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, SampleRecord

PROMPT_CHARS = 400
"""Most characters of a prompt that a difference shows, from its end."""


class Channel(msgspec.Struct):
    """One channel over all calls. tokens: compared. max_difference: nat, None where no logprob was compared.

    differing_ids, differing_texts: positions. unknown_ids, unknown_texts: positions where a wire gives none.
    unlike: calls or labels that cannot be compared: other lengths or meanings, a finite value and an infinite one.
    unknown_meaning: tokens whose logprobs were not compared, since a wire does not say what they mean. texts_alone:
    choices of which a wire gives the text and no tokens.
    spread: of all finite differences.
    """

    tokens: int = 0
    max_difference: float | None = None
    differing_ids: int = 0
    differing_texts: int = 0
    unknown_ids: int = 0
    unknown_texts: int = 0
    unlike: int = 0
    unknown_meaning: int = 0
    texts_alone: int = 0
    spread: Spread = msgspec.field(default_factory=Spread)

    def within(self, tolerance: float) -> bool:
        """Whether tokens are the same and no logprob differs by more than `tolerance`."""
        same = not (self.differing_ids or self.differing_texts or self.unlike)
        return same and (self.max_difference or 0.0) <= tolerance

    def add(self, gaps: Floats) -> None:
        """Take in finite |differences| of logprobs that were compared, nats."""
        if gaps.size:
            self.spread.add(gaps)
            self.max_difference = max(self.max_difference or 0.0, float(gaps.max()))


class Difference(msgspec.Struct, frozen=True):
    """The first difference. part: of the sample. prompt: its end. detail: what differs, with both values."""

    task: str
    row: str
    part: str
    detail: str
    prompt: str


class Comparison(msgspec.Struct):
    """A against another run. samples: compared. missing: scored in one run only. calls: compared."""

    input: Channel
    labels: Channel
    sampled: Channel
    samples: int = 0
    missing: int = 0
    calls: int = 0
    first: Difference | None = None


def compare(a: StoreReader, b: StoreReader) -> Comparison:
    """Walk two stored runs of the same tasks and rows side by side. Raises StoreError for a damaged store."""
    pair = Comparison(Channel(), Channel(), Channel())
    for task in a.provenance.tasks:
        for one, two in _matched(a.samples(task), b.samples(task)):
            if one is None or two is None or {one.status, two.status} == {"ok", "failed"}:
                pair.missing += 1
            elif one.status == "ok":
                pair.samples += 1
                _compare_sample(pair, one, list(a.calls(one.key)), list(b.calls(two.key)), two)
    return pair


def _matched(
    a: Iterator[SampleRecord], b: Iterator[SampleRecord]
) -> Iterator[tuple[SampleRecord | None, SampleRecord | None]]:
    """Samples of equal place and repeat, in order; None where one run has none."""
    one, two = next(a, None), next(b, None)
    while one is not None or two is not None:
        order = _order(one, two)
        yield (one if order <= 0 else None, two if order >= 0 else None)
        one = next(a, None) if order <= 0 else one
        two = next(b, None) if order >= 0 else two


def _order(one: SampleRecord | None, two: SampleRecord | None) -> int:
    if one is None or two is None:
        return 1 if one is None else -1
    left, right = (one.index, one.repeat), (two.index, two.repeat)
    return (left > right) - (left < right)


def _compare_sample(
    pair: Comparison, sample: SampleRecord, a: Sequence[CallRecord], b: Sequence[CallRecord], other: SampleRecord
) -> None:
    theirs = {call.part: call for call in b if call.status == "ok"}
    for call in (c for c in a if c.status == "ok"):
        if call.part not in theirs:
            raise StoreError(f"sample {other.key} lacks its call {call.part!r}")
        pair.calls += 1
        detail = _compare_call(pair, request_of(call), response_of(call), response_of(theirs[call.part]))
        if detail is not None:
            _keep_first(pair, sample, call, detail)
    detail = _compare_labels(pair.labels, sample, other)
    if detail is not None and a:
        _keep_first(pair, sample, a[0], detail)


def _keep_first(pair: Comparison, sample: SampleRecord, call: CallRecord, detail: str) -> None:
    if pair.first is None:
        prompt = shown_prompt(request_of(call))
        pair.first = Difference(sample.task, sample.row_id, call.part, detail, prompt[-PROMPT_CHARS:])


def shown_prompt(request: Request) -> str:
    """A request's prompt as text."""
    prompt = request.input
    if prompt.messages is not None:
        return "\n".join(m.text for m in prompt.messages)
    return prompt.text if prompt.text is not None else " ".join(map(str, prompt.token_ids or ()))


def _compare_call(pair: Comparison, request: Request, a: Response, b: Response) -> str | None:
    """Count one call and say what first differs in it."""
    if request.scoring.prompt is not None:
        if a.prompt is None or b.prompt is None:
            pair.input.unlike += 1
            return "a prompt channel is absent"
        return compare_tokens(pair.input, a.prompt, b.prompt)
    if request.scoring.label_ids is not None or (request.scoring.sampled or 0) > 0:
        return None
    details = [_compare_choice(pair.sampled, x, y) for x, y in zip(a.choices, b.choices, strict=True)]
    return next((d for d in details if d is not None), None)


def _compare_choice(channel: Channel, a: Choice, b: Choice) -> str | None:
    """Generated text first, since wires without ids or logprobs have nothing else."""
    if a.text != b.text:
        channel.differing_texts += 1
        return f"texts {_end(a.text, b.text)}"
    if a.token_ids is not None and b.token_ids is not None and a.token_ids.tolist() != b.token_ids.tolist():
        channel.differing_ids += 1
        return "the same text from other token ids"
    if a.tokens is None or b.tokens is None:
        channel.texts_alone += 1
        return None
    return compare_tokens(channel, a.tokens, b.tokens, texts=False)


def _end(a: str, b: str) -> str:
    """Both texts from where they part."""
    n = min(len(a), len(b))
    at = next((i for i in range(n) if a[i] != b[i]), n)
    return f"part at character {at}: {a[at : at + 40]!r} and {b[at : at + 40]!r}"


def compare_tokens(channel: Channel, a: Tokens, b: Tokens, *, texts: bool = True) -> str | None:
    """Count two channels of the same tokens and say what first differs, or None."""
    if len(a) != len(b):
        channel.unlike += 1
        return f"{len(a)} and {len(b)} tokens"
    if a.meaning != b.meaning and "unknown" not in (a.meaning, b.meaning):
        channel.unlike += 1
        return f"logprobs mean different things: {a.meaning} and {b.meaning}"
    channel.tokens += len(a)
    details = [_compare_ids(channel, a, b), _compare_texts(channel, a, b) if texts else None]
    if "unknown" in (a.meaning, b.meaning):
        channel.unknown_meaning += len(a)
    else:
        details.append(_compare_values(channel, a, b))
    return next((d for d in details if d is not None), None)


def _compare_ids(channel: Channel, a: Tokens, b: Tokens) -> str | None:
    if a.ids is None or b.ids is None:
        channel.unknown_ids += len(a)
        return None
    other = np.flatnonzero(a.ids != b.ids)
    channel.differing_ids += len(other)
    return f"position {other[0]}: ids {a.ids[other[0]]} and {b.ids[other[0]]}" if len(other) else None


def _compare_texts(channel: Channel, a: Tokens, b: Tokens) -> str | None:
    if a.texts is None or b.texts is None:
        channel.unknown_texts += len(a)
        return None
    pairs = list(enumerate(zip(a.texts, b.texts, strict=True)))
    channel.unknown_texts += sum(None in pair for _, pair in pairs)
    other = [(i, pair) for i, pair in pairs if None not in pair and pair[0] != pair[1]]
    channel.differing_texts += len(other)
    return f"position {other[0][0]}: texts {other[0][1][0]!r} and {other[0][1][1]!r}" if other else None


def _compare_values(channel: Channel, a: Tokens, b: Tokens) -> str | None:
    """Unscored positions (NaN) must match; two infinities are equal."""
    unscored = np.isnan(a.logprobs) & np.isnan(b.logprobs)
    same = (a.logprobs == b.logprobs) | unscored
    with np.errstate(invalid="ignore"):
        gaps = np.where(same, 0.0, np.abs(a.logprobs - b.logprobs))
    finite = np.isfinite(gaps)
    channel.add(gaps[finite & ~unscored])
    if same.all():
        return None
    channel.unlike += not finite.all()
    at = int(np.argmax(~same))
    return f"position {at}: logprobs {a.logprobs[at]:.6f} and {b.logprobs[at]:.6f}"


def _compare_labels(channel: Channel, a: SampleRecord, b: SampleRecord) -> str | None:
    """Label logprobs as scored; null is minus infinity."""
    one, two = _labels(a), _labels(b)
    if one is None and two is None:
        return None
    if one is None or two is None or one.keys() != two.keys():
        channel.unlike += 1
        return "other labels were scored"
    detail = None
    channel.tokens += len(one)
    for label, value in one.items():
        other = two[label]
        if value is not None and other is not None:
            channel.add(np.array([abs(value - other)]))
        if value == other:
            continue
        detail = detail or f"label {label!r}: {value} and {other}"
        channel.unlike += value is None or other is None
    return detail


def _labels(sample: SampleRecord) -> dict[str, float | None] | None:
    output = sample.output if isinstance(sample.output, dict) else {}
    labels = output.get("labels")
    return labels if isinstance(labels, dict) else None

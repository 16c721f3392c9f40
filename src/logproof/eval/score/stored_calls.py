"""Calls as records and back: what a later scoring needs of a reply, in columns beside a small summary.

A response comes back with its prompt channel, its choices (text, finish, tokens, labels) and its counts; what
no score reads (tool calls, opaque blobs, metadata) is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from logproof.dialects.call import Call
from logproof.errors import EndpointError, LogproofError, StoreError
from logproof.ir.request import Request
from logproof.ir.response import Choice, Finish, Labels, Meaning, Response, Tokens, TopK, Usage
from logproof.store.packed_columns import Column
from logproof.store.records import CallRecord

Columns = dict[str, Column]


class ChoiceSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A choice without its columns. meaning, labels: what its logprobs and label scores mean."""

    text: str
    finish: Finish
    meaning: Meaning | None = None
    labels: Meaning | None = None


class ReplySummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A response without its columns. prompt: meaning of the prompt channel.

    mismatches: where the reply differs from the facts; `marks` in the store.
    """

    choices: list[ChoiceSummary]
    usage: Usage
    prompt: Meaning | None = None
    notes: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = msgspec.field(default=(), name="marks")


def call_record(key: str, sample: str, part: str, call: Call, endpoint: str) -> CallRecord:
    """The record of a call that succeeded."""
    response = call.response
    return CallRecord(
        key=key,
        sample_key=sample,
        part=part,
        dialect=call.dialect,
        status="ok",
        attempts=call.attempts,
        seconds=call.seconds,
        request=call.request,
        response=_summary(response, call.notes),
        reply_digest=call.reply_digest,
        endpoint=endpoint,
        model=response.model,
        fingerprint=response.fingerprint,
        columns=_columns(response),
    )


def failed_record(
    key: str, sample: str, part: str, request: Request, dialect: str, error: LogproofError, endpoint: str
) -> CallRecord:
    """The record of a call that failed."""
    return CallRecord(
        key=key,
        sample_key=sample,
        part=part,
        dialect=dialect,
        status="failed",
        error_type=type(error).__name__,
        error=error.message,
        attempts=error.attempts if isinstance(error, EndpointError) else 0,
        request=request,
        endpoint=endpoint,
    )


def request_of(record: CallRecord) -> Request:
    """The request of a record. Raises StoreError where it is none."""
    try:
        return msgspec.convert(record.request, Request, strict=False)
    except msgspec.ValidationError as error:
        raise StoreError(f"a stored request is damaged: {error}") from None


def response_of(record: CallRecord) -> Response:
    """The response of a record of status ok, as far as scoring reads it. Raises StoreError for a damaged one."""
    try:
        summary = msgspec.convert(record.response, ReplySummary)
        columns = record.columns
        prompt = _tokens(columns, "prompt", summary.prompt)
        choices = tuple(_choice(i, c, columns) for i, c in enumerate(summary.choices))
    except (msgspec.ValidationError, KeyError, ValueError) as error:
        raise StoreError(f"a stored reply is damaged: {error}") from None
    return Response(
        choices=choices,
        usage=summary.usage,
        prompt=prompt,
        prompt_ids=_maybe(columns, "prompt_ids"),
        model=record.model,
        fingerprint=record.fingerprint,
        notes=summary.notes,
    )


def _summary(response: Response, mismatches: tuple[str, ...]) -> ReplySummary:
    choices = [
        ChoiceSummary(
            text=c.text,
            finish=c.finish,
            meaning=c.tokens.meaning if c.tokens is not None else None,
            labels=c.labels.meaning if c.labels is not None else None,
        )
        for c in response.choices
    ]
    prompt = response.prompt.meaning if response.prompt is not None else None
    return ReplySummary(choices, response.usage, prompt, response.notes, mismatches)


def _columns(response: Response) -> Columns:
    columns: Columns = {}
    if response.prompt_ids is not None:
        columns["prompt_ids"] = response.prompt_ids
    _put_tokens(columns, "prompt", response.prompt)
    for i, choice in enumerate(response.choices):
        if choice.token_ids is not None:
            columns[f"{i}.token_ids"] = choice.token_ids
        _put_tokens(columns, str(i), choice.tokens)
        if choice.labels is not None:
            columns[f"{i}.label_ids"] = choice.labels.ids
            columns[f"{i}.label_logprobs"] = choice.labels.logprobs
    return columns


def _put_tokens(columns: Columns, name: str, tokens: Tokens | None) -> None:
    if tokens is None:
        return
    _put(columns, name, {"logprobs": tokens.logprobs, "ids": tokens.ids, "ranks": tokens.ranks, "texts": tokens.texts})
    if tokens.top is not None:
        top = tokens.top
        parts = {"offsets": top.offsets, "logprobs": top.logprobs, "ids": top.ids, "ranks": top.ranks}
        _put(columns, f"{name}.top", {**parts, "texts": top.texts})


def _put(columns: Columns, name: str, parts: Mapping[str, Column | None]) -> None:
    columns.update({f"{name}.{part}": column for part, column in parts.items() if column is not None})


def _choice(index: int, summary: ChoiceSummary, columns: Mapping[str, Column]) -> Choice:
    labels = None
    if summary.labels is not None:
        ids, values = columns[f"{index}.label_ids"], columns[f"{index}.label_logprobs"]
        labels = Labels(np.asarray(ids, dtype=np.int64), np.asarray(values, dtype=np.float64), summary.labels)
    return Choice(
        index=index,
        text=summary.text,
        finish=summary.finish,
        token_ids=_maybe(columns, f"{index}.token_ids"),
        tokens=_tokens(columns, str(index), summary.meaning),
        labels=labels,
    )


def _tokens(columns: Mapping[str, Column], name: str, meaning: Meaning | None) -> Tokens | None:
    if meaning is None:
        return None
    return Tokens(
        logprobs=np.asarray(columns[f"{name}.logprobs"], dtype=np.float64),
        meaning=meaning,
        ids=_maybe(columns, f"{name}.ids"),
        ranks=_maybe(columns, f"{name}.ranks"),
        texts=_texts(columns, f"{name}.texts"),
        top=_top(columns, f"{name}.top"),
    )


def _top(columns: Mapping[str, Column], name: str) -> TopK | None:
    offsets = _maybe(columns, f"{name}.offsets")
    if offsets is None:
        return None
    return TopK(
        offsets=offsets,
        logprobs=np.asarray(columns[f"{name}.logprobs"], dtype=np.float64),
        ids=_maybe(columns, f"{name}.ids"),
        ranks=_maybe(columns, f"{name}.ranks"),
        texts=_texts(columns, f"{name}.texts"),
    )


def _maybe(columns: Mapping[str, Column], name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    column = columns.get(name)
    return None if column is None else np.asarray(column, dtype=np.int64)


def _texts(columns: Mapping[str, Column], name: str) -> tuple[str | None, ...] | None:
    column = columns.get(name)
    return None if column is None or isinstance(column, np.ndarray) else tuple(column)

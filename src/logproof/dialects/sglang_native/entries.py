"""The reply of SGLang's /generate: typed decoding, and its entries as checked columns.

Facts of SGLang 0.5.23 that shape it. Entries are [logprob, token id, text or null]. A list starts at the
`logprob_start_len` that was asked, and its first entry is null. The top lists hold the exact k best, and the
scored token only where it is one of them. Stop tokens stay in `output_ids` while absent from `text`. An abort
is a 200 whose finish reason has the type `abort`. The lowest float32 stands for the logarithm of a probability
that underflowed to 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from logproof.dialects.common import logprobs
from logproof.dialects.common.decode import decode
from logproof.errors import BadReply, MissingChannel, ServerFault, StatusError
from logproof.http.faults import error_in_body
from logproof.ir.response import Finish, FinishReason, Floats, Ids, Labels, Meaning, TopK, Usage

Entry = tuple[float | None, int, str | None]

LOWEST = float(np.finfo(np.float32).min)
MASS_LIMIT = 1.02
"""Most that the probabilities at one position may sum to: 1, and the rounding of a bfloat16 softmax."""


class GenerateFinish(msgspec.Struct, gc=False, omit_defaults=True):
    """Why a choice ended; `length` is the number of tokens at which the engine cut."""

    type: str
    length: int | None = None
    matched: int | str | None = None
    message: str | None = None
    status_code: int | None = None
    err_type: str | None = None


class WeightSpan(msgspec.Struct, gc=False):
    """The output tokens that one version of the weights made."""

    version: str


class Meta(msgspec.Struct, gc=False, omit_defaults=True):
    """Counts and channels of one choice. `total_retractions` is an older name of `num_retractions`."""

    prompt_tokens: int
    completion_tokens: int
    id: str | None = None
    finish_reason: GenerateFinish | None = None
    cached_tokens: int | None = None
    cached_tokens_details: dict[str, object] | None = None
    reasoning_tokens: int | None = None
    image_tokens: int | None = None
    audio_tokens: int | None = None
    video_tokens: int | None = None
    weight_version: str | None = None
    weight_versions: list[WeightSpan] | None = None
    num_retractions: int | None = None
    total_retractions: int | None = None
    input_token_logprobs: list[Entry] | None = None
    input_top_logprobs: list[list[Entry] | None] | None = None
    output_token_logprobs: list[Entry] | None = None
    output_token_logprobs_length: int | None = None
    output_top_logprobs: list[list[Entry] | None] | None = None
    output_token_ids_logprobs: list[list[Entry] | None] | None = None


class GenerateBody(msgspec.Struct, gc=False, omit_defaults=True):
    """One choice. text is absent when the server runs without a tokenizer; index comes in streams."""

    output_ids: list[int]
    meta_info: Meta
    text: str | None = None
    prompt_token_ids: list[int] | None = None
    index: int | None = None


_BODIES: msgspec.json.Decoder[GenerateBody | list[GenerateBody]] = msgspec.json.Decoder(
    GenerateBody | list[GenerateBody]
)

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


def read(body: bytes) -> list[GenerateBody]:
    """The choices in order. Raises BadReply for another shape, StatusError for an error object."""
    reply = decode(_BODIES, body)
    found = reply if isinstance(reply, list) else [reply]
    for i, choice in enumerate(found):
        if choice.index is not None and choice.index != i:
            raise BadReply(f"choice {choice.index} in place {i}", path=f"/{i}/index")
    return found


def finish(body: GenerateBody, path: str) -> Finish:
    """Why a choice ended. Raises BadReply for an unfinished one, StatusError for an aborted one."""
    found = body.meta_info.finish_reason
    if found is None:
        raise BadReply("the choice did not finish", path=f"{path}/meta_info/finish_reason")
    if found.type == "abort":
        raise _aborted(found)
    return Finish(_REASONS.get(found.type, "other"), found.type, found.matched)


def _aborted(found: GenerateFinish) -> StatusError:
    message = f"the engine aborted the request: {found.message or 'no reason given'}"
    error = {"message": message, "code": found.status_code, "type": found.err_type}
    known = error_in_body(msgspec.json.encode({"error": error}).decode())
    return known or ServerFault(500, message)


def output_ids(body: GenerateBody, path: str) -> Ids:
    """The sampled ids, as many as the engine counted."""
    meta = body.meta_info
    logprobs.same_length(f"{path}/output_ids", meta.completion_tokens, len(body.output_ids), "completion tokens")
    return logprobs.ids(body.output_ids, f"{path}/output_ids")


def mixture(meta: Meta) -> str | None:
    """What makes the logprobs of one choice a mixture of several runs, or None."""
    retractions = meta.num_retractions or meta.total_retractions
    if retractions:
        return f"the engine retracted and repeated this request {retractions} times"
    versions = {span.version for span in meta.weight_versions or ()}
    return f"the weights changed within the reply ({', '.join(sorted(versions))})" if len(versions) > 1 else None


def usage(bodies: Sequence[GenerateBody]) -> Usage:
    """Counts over all choices: one prompt, the sum of the completions."""
    metas = [b.meta_info for b in bodies]
    first = metas[0]
    if any(m.prompt_tokens != first.prompt_tokens for m in metas):
        raise BadReply("the choices disagree about the prompt's length", path="/0/meta_info/prompt_tokens")
    reasoning = [m.reasoning_tokens for m in metas if m.reasoning_tokens is not None]
    details = {
        name: getattr(first, name)
        for name in ("cached_tokens_details", "image_tokens", "audio_tokens", "video_tokens")
        if getattr(first, name) is not None
    }
    return Usage(
        prompt=first.prompt_tokens,
        completion=sum(m.completion_tokens for m in metas),
        cached=first.cached_tokens if all(m.cached_tokens == first.cached_tokens for m in metas) else None,
        reasoning=sum(reasoning) if len(reasoning) == len(metas) else None,
        details=details or None,
    )


class EntryColumns(msgspec.Struct, gc=False, frozen=True):
    """The entries of one channel by kind, each as long as the channel."""

    values: tuple[float | None, ...]
    ids: tuple[int, ...]
    texts: tuple[str | None, ...]

    @property
    def own(self) -> list[tuple[int | str, float] | None]:
        """(id, logprob) of each position, None where it is unscored."""
        return [None if v is None else (t, v) for t, v in zip(self.ids, self.values, strict=True)]


def scored(entries: Sequence[Entry]) -> EntryColumns:
    """Entries split by kind."""
    return EntryColumns(tuple(e[0] for e in entries), tuple(e[1] for e in entries), tuple(e[2] for e in entries))


def lift_values(values: Sequence[float | None], path: str, *, unscored: int = 0) -> Floats:
    """float64 [n]; see dialects/common/logprobs.py. The lowest float32 becomes -inf; -9999.0 has no meaning here."""
    column = logprobs.logprobs(values, path, unscored=unscored, sentinel=False)
    column[column <= LOWEST] = -np.inf
    return column


def top(
    positions: Sequence[list[Entry] | None] | None, channel: EntryColumns, asked: int, width: int, path: str
) -> TopK:
    """The `width` best at each position, with the scored token beside them where it is none of them.

    asked: the width that the wire was asked for, at least `width`; as its lists are exact, cutting them is too.
    Raises MissingChannel where the lists are absent, BadReply for a list of another width, a repeated or
    contradicted token, a scored token left out although it is among the best, or probabilities above 1.
    """
    if positions is None:
        raise MissingChannel("top logprobs were asked and are absent", path=path)
    logprobs.same_length(path, len(channel.ids), len(positions), "scored tokens")
    own = list(zip(channel.values, channel.ids, channel.texts, strict=True))
    rows = [
        _row(entries or [], entry, asked, width, f"{path}/{i}")
        for i, (entries, entry) in enumerate(zip(positions, own, strict=True))
    ]
    found = logprobs.top_k(rows, width, channel.own, path)
    found.logprobs[found.logprobs <= LOWEST] = -np.inf
    _check_mass(found, path)
    return found


def _row(
    entries: list[Entry], own: Entry, asked: int, width: int, path: str
) -> tuple[list[int], list[float], None, list[str] | None]:
    if own[0] is not None and len(entries) != asked:
        raise BadReply(f"{len(entries)} entries for a top {asked}", path=path)
    if any(e[0] is None for e in entries):
        raise BadReply("null at a scored position", path=path)
    if any(e[0] == logprobs.SENTINEL for e in entries):
        raise BadReply(f"{logprobs.SENTINEL} is no logprob of this engine", path=path)
    if len({e[1] for e in entries}) != len(entries):
        raise BadReply("one token listed twice", path=path)
    best = sorted(entries, key=lambda e: -(e[0] or 0.0))[:width]
    if own[0] is not None and own[1] not in {e[1] for e in best}:
        best.append(next((e for e in entries if e[1] == own[1]), own))
    texts = [e[2] for e in best if e[2] is not None]
    return [e[1] for e in best], [e[0] or 0.0 for e in best], None, texts if len(texts) == len(best) else None


def _check_mass(found: TopK, path: str) -> None:
    """Refuse positions whose probabilities sum to more than 1: their values cannot belong together."""
    sums = np.concatenate([[0.0], np.cumsum(np.exp(found.logprobs))])[found.offsets]
    over = np.flatnonzero(np.diff(sums) > MASS_LIMIT)
    if len(over):
        raise BadReply("the probabilities sum to more than 1", path=f"{path}/{int(over[0])}")


def labels(
    rows: Sequence[list[Entry] | None] | None, channel: EntryColumns, asked: Sequence[int], meaning: Meaning, path: str
) -> Labels:
    """Scores of the asked ids, one row a sampled token.

    Raises MissingChannel where they are absent, BadReply where a row names other ids than were asked, or
    gives the sampled token another logprob than the token's own.
    """
    if rows is None:
        raise MissingChannel("label scores were asked and are absent", path=path)
    logprobs.same_length(path, len(channel.ids), len(rows), "sampled tokens")
    flat: list[float | None] = []
    for i, (row, token, value) in enumerate(zip(rows, channel.ids, channel.values, strict=True)):
        ids = [e[1] for e in row or ()]
        if ids != list(asked):
            raise BadReply(f"scores of ids {ids[:8]} where {list(asked)[:8]} were asked", path=f"{path}/{i}")
        flat += [e[0] for e in row or ()]
        if token in ids and flat[len(flat) - len(ids) + ids.index(token)] != value:
            raise BadReply(f"two logprobs for the sampled token {token}", path=f"{path}/{i}")
    table = lift_values(flat, path).reshape(len(rows), len(asked))
    return Labels(ids=np.array(asked, dtype=np.int64), logprobs=table, meaning=meaning)

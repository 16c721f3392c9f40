"""Response: what an engine answered, as whole choices and token columns.

Columns, not rows: a channel of n tokens is a few arrays of length n; top-k entries of all positions lie in
one flat array with offsets. NaN marks a position that the engine does not score (the first prompt token),
-inf a token that is impossible (a grammar mask); no other value stands for either.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from logproof.ir.message import Opaque, Part, ToolCallPart

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

Meaning = Literal["raw", "processed", "constrained", "unknown"]
"""What a logprob is a logprob of: the model's own distribution; the one after temperature, penalties and
cuts; the one after a grammar mask; or not known."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error", "other"]


class TopK(msgspec.Struct, frozen=True, eq=False):
    """The best entries at each of n positions, flat. Position i owns entries offsets[i]:offsets[i + 1].

    offsets: int64 [n + 1]. logprobs: float64 [m]. ids: int64 [m], None on wires that key by text.
    ranks: int64 [m], 1 is best, None where unreported. texts: m strings (an element None: not known), None
    where the wire gave ids only.
    Entries are sorted by falling logprob; the scored token is among them.
    """

    offsets: Ids
    logprobs: Floats
    ids: Ids | None = None
    ranks: Ids | None = None
    texts: tuple[str | None, ...] | None = None

    def span(self, position: int) -> slice:
        """The slice of flat entries that belongs to one position."""
        return slice(int(self.offsets[position]), int(self.offsets[position + 1]))

    def by_id(self, position: int) -> dict[int, float]:
        """{token id: logprob} at one position. Raises ValueError where the wire gave no ids."""
        if self.ids is None:
            raise ValueError("this channel is keyed by text")
        span = self.span(position)
        return dict(zip(self.ids[span].tolist(), self.logprobs[span].tolist(), strict=True))

    def by_text(self, position: int) -> dict[str, float]:
        """{token text: logprob} at one position. Raises ValueError where texts are absent or not unique there."""
        span = self.span(position)
        texts = [t for t in (self.texts or ())[span] if t is not None]
        if len(texts) != span.stop - span.start:
            raise ValueError("this channel holds no texts")
        if len(set(texts)) != len(texts):
            raise ValueError(f"position {position} holds two tokens of the same text")
        return dict(zip(texts, self.logprobs[span].tolist(), strict=True))


class Tokens(msgspec.Struct, frozen=True, eq=False):
    """A channel of n tokens. logprobs: float64 [n]; ids, ranks: int64 [n] or None; texts: n strings or None.

    A rank of 0 and a text of None are not known at that position. Texts are what the engine decoded in context:
    they join to the whole text, but one text does not identify a token (pieces of a character decode to "").
    top: rivals, None unless a width above 0 was asked.
    """

    logprobs: Floats
    meaning: Meaning
    ids: Ids | None = None
    ranks: Ids | None = None
    texts: tuple[str | None, ...] | None = None
    top: TopK | None = None

    def __len__(self) -> int:
        return len(self.logprobs)


class Labels(msgspec.Struct, frozen=True, eq=False):
    """Exact logprobs of the asked label ids. ids: int64 [w]; logprobs: float64 [n, w], one row a position."""

    ids: Ids
    logprobs: Floats
    meaning: Meaning


class Finish(msgspec.Struct, frozen=True):
    """Why a choice ended. reason: normalised. raw: the wire's own word. matched: stop string or id, if told."""

    reason: FinishReason
    raw: str | None
    matched: str | int | None = None


class HostedUse(msgspec.Struct, frozen=True):
    """One use of a tool that the provider ran. kind: the wire's type; item: the JSON value as received."""

    kind: str
    item: object


class Citation(msgspec.Struct, frozen=True):
    """A source that the text cites. start, end: character span in the choice's text, where the wire tells."""

    kind: str
    url: str | None = None
    title: str | None = None
    start: int | None = None
    end: int | None = None
    item: object = None


class Choice(msgspec.Struct, frozen=True, eq=False):
    """One completion, whole.

    text: visible text. tokens, labels: scored channels, None unless asked. token_ids: int64 [n] of what was
    sampled, known on some wires without logprobs. parsed: value of structured output. reasoning: its text.
    opaque: blobs to send back, in order. refusal: the model's refusal, never mixed into text. turn: all parts in
    the wire's order, blobs and signatures in place, for sending the turn back (ir/turn.py); None where the order
    of the channels says it all.
    """

    index: int
    text: str
    finish: Finish
    token_ids: Ids | None = None
    tokens: Tokens | None = None
    labels: Labels | None = None
    parsed: object = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCallPart, ...] = ()
    hosted_uses: tuple[HostedUse, ...] = ()
    citations: tuple[Citation, ...] = ()
    grounding: object = None
    opaque: tuple[Opaque, ...] = ()
    refusal: str | None = None
    turn: tuple[Part, ...] | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts. None is unreported, never zero.

    prompt includes cached tokens, completion includes reasoning tokens, on every wire.
    """

    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    details: dict[str, object] | None = None


class Response(msgspec.Struct, frozen=True, eq=False):
    """One reply. choices: in index order, as many as asked. prompt: the scored prompt channel, None unless asked.

    prompt_ids: int64 [n] of the prompt where the wire tells. model, fingerprint: as reported.
    notes: what the reader of a number must know, one line each (an option whose effect is unconfirmed).
    """

    choices: tuple[Choice, ...]
    usage: Usage
    prompt: Tokens | None = None
    prompt_ids: Ids | None = None
    model: str | None = None
    fingerprint: str | None = None
    response_id: str | None = None
    session_id: str | None = None
    metadata: dict[str, object] = {}
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Text of the only choice. Raises ValueError where there are several."""
        if len(self.choices) != 1:
            raise ValueError(f"{len(self.choices)} choices: name one")
        return self.choices[0].text

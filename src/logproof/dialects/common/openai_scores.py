"""What the chat and the responses wire share of scores: lists of scored tokens, narrowed to a top-k that is certain.

A scored token is an entry `{token, logprob, bytes, top_logprobs: [...]}`. Servers fill `top_logprobs` in two
ways: OpenAI and SGLang list the k best, sampled or not; vLLM puts the sampled token first and cuts the list to
k, which loses the k-th best when the sampled one is not among them. So dialects ask for one more than the k
that is wanted (`asked_width`), and `sampled_tokens` narrows to a top-k that is certain under either rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from logproof.dialects.common import joined_texts, logprobs, structured
from logproof.errors import BadReply
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Meaning, Tokens, TopK, Usage
from logproof.ir.tokens import placeholder_id, placeholder_ids

OPENAI_WIDEST = 20
"""Largest `top_logprobs` that OpenAI's wires document."""

Server = Literal["vllm", "sglang"] | None
"""Which server a reply is known to come from, by marks in the reply itself."""

Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Rival(msgspec.Struct, gc=False):
    """One entry of a top list."""

    token: str
    logprob: float
    bytes: list[Byte] | None = None


class ScoredToken(msgspec.Struct, gc=False):
    """One sampled token with its top list."""

    token: str
    logprob: float
    bytes: list[Byte] | None = None
    top_logprobs: list[Rival] | None = None


def asked_width(width: int, facts: Facts) -> int:
    """The `top_logprobs` to send for a top `width`: one more, but never beyond OpenAI's limit for its sake.

    At OpenAI's limit itself, the width as it is: a list of k is certain there unless the sampled token ends it.
    """
    if width == OPENAI_WIDEST and facts.engine not in ("vllm", "sglang"):
        return width
    return width + 1


def width_fault(width: int, facts: Facts) -> str | None:
    """Why this endpoint cannot give a certain top `width`, or None."""
    if facts.engine == "openai" and width > OPENAI_WIDEST:
        return f"this wire gives at most {OPENAI_WIDEST} top logprobs"
    if facts.max_logprobs is not None and width and asked_width(width, facts) > facts.max_logprobs:
        return (
            f"a certain top {width} takes {width + 1} on this wire, and this endpoint gives at most "
            f"{facts.max_logprobs} (vLLM's --max-logprobs)"
        )
    return None


def sampled_meaning(request: Request, server: Server) -> Meaning:
    """What the sampled logprobs are logprobs of.

    Under a grammar (structured output, a tool call that the server forces or holds to its schema) they are
    masked. vLLM reports raw ones; servers that do not tell agree only at temperature 1 without cuts or biases.
    """
    tools = request.tools
    forced = tools.choice == "required" or (tools.choice or "").startswith("function:")
    if tools.functions and tools.choice != "none" and (forced or any(f.strict for f in tools.functions)):
        return "constrained"
    if server == "vllm":
        return structured.sampled_meaning(request.output, request.replay.logprobs_mode or "raw")
    s = request.sampling
    plain = s.temperature == 1 and s.top_p in (None, 1) and s.top_k is None and not request.options
    plain = plain and not (s.frequency_penalty or s.presence_penalty or s.logit_bias)
    return structured.sampled_meaning(request.output, "raw" if plain else "unknown")


def sampled_tokens(request: Request, entries: Sequence[ScoredToken], server: Server, path: str) -> Tokens:
    """Tokens of a list of entries: by id where every token is a `token_id:N`, by text otherwise.

    Raises BadReply where ids were asked and texts came, for a top list that is short, repeats a token, gives the
    sampled one another value, or may have lost its k-th best; for -9999, but where vLLM's list holds it (-inf).
    """
    ids = placeholder_ids([e.token for e in entries]) if entries else None
    if ids is None and entries and request.scoring.top_by == "id":
        raise BadReply("tokens came as texts, ids were asked", path=f"{path}/0/token")
    meaning = sampled_meaning(request, server)
    for i, entry in enumerate(entries):
        _check_sentinels(entry, server, meaning, f"{path}/{i}")
        if ids is None and (_decoded(entry.bytes) or entry.token) != entry.token:
            raise BadReply("the token's text and its bytes differ", path=f"{path}/{i}/bytes")
    width = request.scoring.sampled or 0
    if width:
        _check_even(entries, path)
    return Tokens(
        logprobs=logprobs.logprobs([e.logprob for e in entries], path),
        meaning=meaning,
        ids=logprobs.ids(ids, path) if ids is not None else None,
        texts=_texts(entries, by_id=ids is not None),
        top=_top(entries, width, ids is not None, path) if width else None,
    )


def _check_sentinels(entry: ScoredToken, server: Server, meaning: Meaning, path: str) -> None:
    """-9999 stands for minus infinity at vLLM alone, and only a mask makes a rival impossible."""
    listed = entry.top_logprobs or ()
    if entry.logprob == logprobs.SENTINEL and not (server == "vllm" and any(r.token == entry.token for r in listed)):
        raise BadReply("-9999 says that the logprob is not known; it is no probability", path=f"{path}/logprob")
    at = next((j for j, r in enumerate(listed) if r.logprob == logprobs.SENTINEL), None)
    if server != "vllm" and at is not None:
        raise BadReply("-9999 is no probability on this server", path=f"{path}/top_logprobs/{at}/logprob")
    if at is not None and listed[at].token != entry.token:
        logprobs.check_spoiled([r.logprob for r in listed], f"{path}/top_logprobs/{at}", raw=meaning == "raw")


def _check_even(entries: Sequence[ScoredToken], path: str) -> None:
    """Lists of one reply are equally long, but for one entry more where the sampled token stands below the others."""
    sizes = [len(e.top_logprobs or ()) for e in entries]
    widest = max(sizes, default=0)
    for i, (size, entry) in enumerate(zip(sizes, entries, strict=True)):
        beside = all(r.logprob >= entry.logprob for r in entry.top_logprobs or ())
        if size < widest - 1 or (size == widest and min(sizes) < widest and not beside):
            raise BadReply(f"top lists of {min(sizes)} to {widest} entries", path=f"{path}/{i}/top_logprobs")


def _texts(entries: Sequence[ScoredToken], *, by_id: bool) -> tuple[str, ...] | None:
    """What the engine decoded; beside ids it stands in `bytes`."""
    if not by_id:
        return tuple(e.token for e in entries)
    texts = [_decoded(e.bytes) for e in entries]
    whole = tuple(t for t in texts if t is not None)
    return whole if len(whole) == len(texts) else None


def _decoded(raw: list[int] | None) -> str | None:
    try:
        return bytes(raw).decode() if raw is not None else None
    except UnicodeDecodeError:
        return None


def _top(entries: Sequence[ScoredToken], width: int, by_id: bool, path: str) -> TopK:
    narrowed = [narrow(entry, width, by_id, f"{path}/{i}/top_logprobs") for i, entry in enumerate(entries)]
    scored: list[tuple[int | str, float] | None] = [(_key(e.token, by_id, path), e.logprob) for e in entries]
    return logprobs.top_k((_position(best, by_id) for best in narrowed), width, scored, path)


def _position(
    best: Mapping[int | str, float], by_id: bool
) -> tuple[list[int] | None, list[float], None, list[str] | None]:
    keys, values = list(best), list(best.values())
    if by_id:
        return [k for k in keys if isinstance(k, int)], values, None, None
    return None, values, None, [k for k in keys if isinstance(k, str)]


def narrow(entry: ScoredToken, width: int, by_id: bool, path: str) -> dict[int | str, float]:
    """The certain `width` best of one position with the sampled token among or beside them: {id or text: logprob}.

    Let the list hold m tokens. If the sampled one is listed above another, nothing was cut: the list is the m
    best. If it is listed last, the m - 1 others are the m - 1 best, and whether it is the m-th is open. If it is
    not listed, the list is the m best. Raises BadReply where `width` tokens are not certain, and for m outside
    width..width + 2.
    """
    own = _key(entry.token, by_id, path)
    listed = _listed(entry.top_logprobs or [], by_id, path)
    others = {k: v for k, v in listed.items() if k != own}
    floor = min(others.values(), default=-np.inf)
    if own in listed and listed[own] != entry.logprob:
        raise BadReply(f"two values for the sampled token: {entry.logprob} and {listed[own]}", path=path)
    if own not in listed and entry.logprob > floor:
        raise BadReply("the list lacks the sampled token, which is above its last", path=path)
    above = own in listed and bool(others) and entry.logprob > floor
    certain = len(listed) if above else len(others)
    if certain < width or len(listed) > width + 2:
        hint = "ask for one less, or use vllm_native" if own in listed and len(listed) == width else None
        raise BadReply(f"{certain} certain entries for a top {width} in a list of {len(listed)}", path=path, hint=hint)
    ranked = sorted(listed if above else others, key=lambda k: -listed[k])
    best = {k: listed[k] for k in ranked[:width]}
    return best | {own: entry.logprob}


def _listed(rivals: Sequence[Rival], by_id: bool, path: str) -> dict[int | str, float]:
    """{id or text: logprob}. An id listed twice with one value is one entry; a text twice may be two tokens."""
    found: dict[int | str, float] = {}
    for i, rival in enumerate(rivals):
        key = _key(rival.token, by_id, f"{path}/{i}")
        if key in found and (not by_id or found[key] != rival.logprob):
            raise BadReply(f"two entries for {key!r}", path=f"{path}/{i}")
        found[key] = rival.logprob
    return found


def _key(token: str, by_id: bool, path: str) -> int | str:
    if not by_id:
        return token
    token_id = placeholder_id(token)
    if token_id is None:
        raise BadReply("a top entry keyed by text among ids", path=path)
    return token_id


def check_count(scored: int, usage: Usage, server: Server, stopped: int, path: str) -> None:
    """Compare the number of scored tokens with the reply's own count.

    vLLM and SGLang score every completion token. OpenAI leaves out reasoning tokens, and does not say whether
    the end token of a choice that stopped (`stopped` of them) is counted. Raises BadReply for any other number,
    and where the reply counts nothing.
    """
    if usage.completion is None:
        raise BadReply(
            "nothing in the reply says how many tokens were sampled", path="/usage", hint="ask without streaming"
        )
    hidden = range(1) if server is not None else range(stopped + 1)
    unscored = {0} if server is not None else {0, usage.reasoning or 0}
    if scored not in {usage.completion - less - ends for less in unscored for ends in hidden}:
        raise BadReply(f"{scored} scored tokens, usage says {usage.completion}", path=path)


def check_text(entries: Sequence[ScoredToken], text: str, path: str) -> None:
    """Check that tokens named by their texts join to the choice's text: then none is missing or out of place.

    Tokens beyond the text are those of a stop. Engines that decode each token alone give U+FFFD for a part of a
    character (dialects/common/joined_texts.py). Raises BadReply.
    """
    joined = b"".join(bytes(e.bytes) if e.bytes is not None else e.token.encode() for e in entries)
    if joined.startswith(text.encode()):
        return
    texts = [e.token for e in entries]
    partial = any(joined_texts.PARTIAL in t for t in texts)
    if not partial or not (_fit(texts, text) or _fit(texts[:-1], text)):
        hint = "ask for ids where the endpoint gives them, or use its native dialect"
        raise BadReply("the scored tokens do not join to the text", path=path, hint=hint)


def _fit(texts: Sequence[str], whole: str) -> bool:
    found = joined_texts.join(texts, whole)
    return found is not None and "".join(found) == whole

"""S6: does the end of the completion fit the claim? Exact parts need no model; one part reads the last position.

Cannot see: a writer who stops early on a token that the model also finds likely to end on; stop strings that span
tokens.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from logproof.verify.artifact import Artifact

Kind = Literal["contradiction", "unknown"]


class EndFault(msgspec.Struct, frozen=True):
    """kind: contradiction (an honest record cannot have it) or unknown (evidence is missing). detail: in words."""

    kind: Kind
    detail: str


def end_faults(artifact: Artifact) -> list[EndFault]:
    """All that is wrong or unknown about the end; empty where it is sound."""
    ids = artifact.tokens.completion_ids
    if ids is None:
        return [EndFault("unknown", "no token ids")]
    return [*_count(artifact, len(ids)), *_inner(artifact, ids), *_reason(artifact, ids)]


def ending_ids(artifact: Artifact) -> frozenset[int] | None:
    """Ids that end this completion: the model's EOS (unless ignored) and the stop ids; None where unknown."""
    s = artifact.sampling
    if s.stop_token_ids is None or s.ignore_eos is None:
        return None
    if s.ignore_eos:
        return frozenset(s.stop_token_ids)
    if artifact.claim.model.eos_ids is None:
        return None
    return frozenset(artifact.claim.model.eos_ids) | frozenset(s.stop_token_ids)


def _count(artifact: Artifact, n: int) -> list[EndFault]:
    limit, finish = artifact.sampling.max_tokens, artifact.end.finish_reason
    if limit is None:
        return [EndFault("unknown", "max_tokens is unresolved")]
    if n > limit:
        return [EndFault("contradiction", f"{n} tokens, max_tokens is {limit}")]
    if finish == "length" and n < limit:
        return [EndFault("contradiction", f"finish is length after {n} tokens, max_tokens is {limit}")]
    least = artifact.sampling.min_tokens
    if least is not None and finish == "stop" and n < least:
        return [EndFault("contradiction", f"finish is stop after {n} tokens, min_tokens is {least}")]
    return []


def _inner(artifact: Artifact, ids: tuple[int, ...]) -> list[EndFault]:
    """No ending id before the last token; before min_tokens the engine forbids them anyway."""
    ends = ending_ids(artifact)
    if ends is None:
        return []
    at = next((i for i, t in enumerate(ids[:-1]) if t in ends), None)
    return (
        []
        if at is None
        else [EndFault("contradiction", f"token {at} ({ids[at]}) ends a completion, and {at + 1} follows")]
    )


def _reason(artifact: Artifact, ids: tuple[int, ...]) -> list[EndFault]:
    finish, ends = artifact.end.finish_reason, ending_ids(artifact)
    if finish is None:
        return [EndFault("unknown", "no finish reason")]
    if finish == "length" and ends is not None and ids and ids[-1] in ends:
        return [EndFault("contradiction", f"finish is length, but the last token {ids[-1]} ends a completion")]
    if finish not in ("stop", "tool_calls", "length"):
        return [EndFault("unknown", f"finish is {finish}")]
    if finish == "length":
        return []
    return _stopped(artifact, ids, ends)


def _stopped(artifact: Artifact, ids: tuple[int, ...], ends: frozenset[int] | None) -> list[EndFault]:
    """A stop needs an ending id last, or a stop string, which only the text could show."""
    stops = artifact.sampling.stop
    if stops is None or ends is None:
        return [EndFault("unknown", "what may end this completion is unresolved")]
    if ids and ids[-1] in ends:
        return []
    if stops:
        return []
    return [EndFault("contradiction", f"finish is {artifact.end.finish_reason}, but the last token ends nothing")]

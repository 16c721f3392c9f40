"""The check "request": is the record of what its request asks for? Pure.

Who makes a record also chooses what it says of its sampling. The request is the requester's, so each leaf that its body
states must be the record's. What the body leaves out may stand in the record only as what a server fills in.
Cannot see: whether a server really fills in what the record says, and whether the body is the one that was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

import msgspec

from logproof.dialects.common.openai_scores import OPENAI_WIDEST
from logproof.errors import REDACTED, ArtifactError
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.known_request import KnownRequest
from logproof.verify.artifact.request_body import (
    EMPTY,
    StatedRequest,
    protocol_values,
    stated_request,
    value_at,
)
from logproof.verify.check_table import REQUEST
from logproof.verify.checks.case import NOTHING_KNOWN, RecordedCase, TrustedFacts
from logproof.verify.verdict import Finding, failed_if, passed, unknown

_GIVEN_TOKENS = ("enforced_token_ids", "enforced_str")
"""Fields of a request that give the tokens instead of having them drawn."""
_UNRECORDED = ("use_beam_search", "best_of", "stop_regex", "logits_processors", "custom_logit_processor")
"""Fields that change which tokens come and for which a record has no place."""
_ASKING_FIELDS = ("logprobs", "top_logprobs", "logprob_token_ids", "include")
"""Fields of the chat wire and of Responses that ask for logprobs."""
_APART = ("seed", "structured_output", "sources")
"""Fields of the recorded sampling that are compared by rules of their own."""


class RequestFault(msgspec.Struct, frozen=True):
    """kind: contradiction (the record of an honest executor has none) or unknown. detail: in words."""

    kind: Literal["contradiction", "unknown"]
    detail: str


def check_request(case: RecordedCase) -> list[Finding]:
    """The check called "request"."""
    return [request_finding(case.artifact, case.facts)]


def request_finding(artifact: Artifact, facts: TrustedFacts = NOTHING_KNOWN) -> Finding:
    """The finding of the check "request", which needs neither ids nor logprobs."""
    other = list(known_faults(artifact, facts.known))
    if any(fault.kind == "contradiction" for fault in other):
        return _finding(0, other)
    try:
        stated = stated_request(artifact.request)
    except ArtifactError as error:
        return unknown(REQUEST, "request_unclear", error.message)
    return _finding(len(stated.pointers), [*other, *request_faults(artifact, stated, facts)])


def _finding(compared: int, faults: list[RequestFault]) -> Finding:
    wrong = [fault.detail for fault in faults if fault.kind == "contradiction"]
    if not wrong and faults:
        return unknown(REQUEST, "request_unclear", "; ".join(fault.detail for fault in faults))
    sound = passed(REQUEST, f"the record holds the {compared} values that its request states")
    return failed_if(bool(wrong), msgspec.structs.replace(sound, detail="; ".join(wrong) or sound.detail), "request")


def request_faults(artifact: Artifact, stated: StatedRequest, facts: TrustedFacts) -> Iterator[RequestFault]:
    """All in which the record differs from the request that stands in it, or may differ."""
    if not facts.own_record:
        yield from _model(artifact, stated, facts.server.served_as)
        yield from _defaults(artifact, stated, facts)
    for compare in (_choices, _sampling, _seed, _constraint, _logprobs, _drawing):
        yield from compare(artifact, stated)


def known_faults(artifact: Artifact, known: KnownRequest | None) -> Iterator[RequestFault]:
    """The first place at which the recorded request is not the requester's own; none without one."""
    if known is None:
        return
    if artifact.request.path != known.path:
        yield from _wrong(f"the requester sent to {known.path}, the record says {artifact.request.path}")
        return
    for at in differences(artifact.request.body, known.body):
        if not _blanked(artifact, at):
            yield from _wrong(f"{at or 'the body'} of the recorded request is not what the requester sent")
            return
        yield from _open(f"{at} of the recorded request was blanked")


def differences(left: object, right: object) -> Iterator[str]:
    """JSON pointers at which two values differ, outermost ones, in order of keys and places. 1 and 1.0 are equal."""
    waiting = [("", left, right)]
    while waiting:
        at, a, b = waiting.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            names = sorted(a.keys() | b.keys(), reverse=True)
            waiting += [(f"{at}/{_escaped(name)}", a.get(name, _ABSENT), b.get(name, _ABSENT)) for name in names]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
            waiting += [(f"{at}/{i}", a[i], b[i]) for i in reversed(range(len(a)))]
        elif isinstance(a, bool) != isinstance(b, bool) or a != b:
            yield at


_ABSENT = object()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _wrong(detail: str) -> Iterator[RequestFault]:
    yield RequestFault("contradiction", detail)


def _open(detail: str) -> Iterator[RequestFault]:
    yield RequestFault("unknown", detail)


def _model(artifact: Artifact, stated: StatedRequest, served_as: Collection[str]) -> Iterator[RequestFault]:
    """A name that differs may be the requester's own word (`--claim`), which a record of others cannot show."""
    claimed = artifact.claim.model.id
    if not stated.names_model or stated.model == claimed or stated.model in served_as:
        return
    if stated.model is None:
        yield from _open(f"the request names no model, the record claims {claimed}")
    else:
        yield from _open(f"the request names the model {stated.model}, and only the record says that it is {claimed}")


def _choices(artifact: Artifact, stated: StatedRequest) -> Iterator[RequestFault]:
    if artifact.choice.n != stated.n:
        yield from _wrong(f"the request asks for {stated.n} choices, the record is one of {artifact.choice.n}")


def _sampling(artifact: Artifact, stated: StatedRequest) -> Iterator[RequestFault]:
    for leaf in artifact.sampling.__struct_fields__:
        if leaf in _APART:
            continue
        if leaf in stated.pointers:
            yield from _stated_leaf(artifact, stated, leaf)
        else:
            yield from _left_out(artifact, leaf)


def _stated_leaf(artifact: Artifact, stated: StatedRequest, leaf: str) -> Iterator[RequestFault]:
    asked, recorded, at = getattr(stated.sampling, leaf), getattr(artifact.sampling, leaf), stated.pointers[leaf]
    if recorded == asked or _is_capped(artifact, leaf, asked):
        return
    if _blanked(artifact, at):
        yield from _open(f"{at} of the request was blanked")
    else:
        said = "leaves it out" if recorded is None else f"says {recorded!r}"
        yield from _wrong(f"{at} of the request is {asked!r}, the record {said}")


def _is_capped(artifact: Artifact, leaf: str, asked: object) -> bool:
    """Whether the record says that the context had no room for as many tokens as were asked. Nothing follows from it
    for the end of the text (checks/end.py)."""
    limit = artifact.sampling.max_tokens
    engine_said = leaf == "max_tokens" and artifact.sampling.sources.get(leaf) == "engine"
    return engine_said and limit is not None and isinstance(asked, int) and limit < asked


def _blanked(artifact: Artifact, pointer: str) -> bool:
    """Whether a text at or below this place was blanked for a credential."""
    named = [at for at in artifact.request.redactions if at == pointer or at.startswith(f"{pointer}/")]
    return any(REDACTED in text for at in named if isinstance(text := value_at(artifact.request.body, at), str))


def _left_out(artifact: Artifact, leaf: str) -> Iterator[RequestFault]:
    """A leaf that the request does not state."""
    recorded, source = getattr(artifact.sampling, leaf), artifact.sampling.sources.get(leaf)
    if recorded is None or (leaf in EMPTY and recorded == EMPTY[leaf]):
        return
    if source == "request":
        yield from _wrong(f"the record says that the request asks for {leaf} {recorded!r}, and it does not")
    elif source == "protocol":
        fixed = protocol_values(artifact.claim.engine.name, artifact.request.path)
        if fixed.get(leaf) != recorded:
            yield from _wrong(f"no protocol of a request without {leaf} makes it {recorded!r}")
    elif source is None:
        yield from _open(f"nobody says where {leaf} {recorded!r} comes from, for which the request does not ask")


def _defaults(artifact: Artifact, stated: StatedRequest, facts: TrustedFacts) -> Iterator[RequestFault]:
    """What a server filled in, by the word of a record that others wrote, and not as the verifier states.

    But a limit of tokens, which acts on nothing but the end (checks/end.py).
    """
    sources = artifact.sampling.sources
    named = [
        f"{leaf} ({source})"
        for leaf, source in sources.items()
        if source in ("engine", "generation_config", "operator")
        and leaf not in (*stated.pointers, "max_tokens")
        and not (leaf in EMPTY and getattr(artifact.sampling, leaf) == EMPTY[leaf])
        and not facts.server.stands_for(leaf, getattr(artifact.sampling, leaf))
    ]
    if named:
        yield from _open(f"the request leaves out, and only the record says: {', '.join(named)}")


def _seed(artifact: Artifact, stated: StatedRequest) -> Iterator[RequestFault]:
    asked, recorded = stated.sampling.seed, artifact.sampling.seed
    if asked is not None and recorded is None:
        yield from _wrong(f"the request names the seed {asked.value}, the record none")
    elif asked is not None and recorded is not None and asked.value != recorded.value:
        yield from _wrong(f"the request names the seed {asked.value}, the record {recorded.value}")
    elif asked is None and recorded is not None and recorded.origin == "requester":
        yield from _wrong(f"the record says that the requester chose the seed {recorded.value}, the request names none")


def _constraint(artifact: Artifact, stated: StatedRequest) -> Iterator[RequestFault]:
    asked, recorded = stated.sampling.structured_output, artifact.sampling.structured_output
    if recorded != asked and (asked or recorded):
        yield from _wrong("what constrains the text is another in the request than the record says")


def _logprobs(artifact: Artifact, stated: StatedRequest) -> Iterator[RequestFault]:
    spec, body = artifact.logprobs, artifact.request.body
    if spec is None or not isinstance(body, dict):
        return
    widths = _widths(artifact, body)
    if widths is None:
        yield from _wrong("the record holds logprobs, for which the request does not ask")
    elif spec.k not in widths:
        yield from _wrong(f"the record's rows are {spec.k} wide, the request asks for {max(widths)}")
    mode = {"raw_logprobs": "raw", "processed_logprobs": "processed"}.get(str(body.get("logprobs_mode")))
    if mode is not None and spec.mode in ("raw", "processed") and spec.mode != mode:
        yield from _wrong(f"the request asks for {mode} logprobs, the record says that they are {spec.mode}")
    if spec.mode == "constrained" and not stated.sampling.structured_output:
        yield from _wrong("the record's logprobs are those under a grammar, and the request has none")


def _widths(artifact: Artifact, body: dict[str, object]) -> Collection[int] | None:
    """Widths that a record of this request may state, None where it asks for no logprobs.

    0 stands among them where rivals may be named by texts, which are no evidence. Of lists that may hold the sampled
    token in place of their last entry, one entry is not certain.
    """
    dialect = artifact.request.dialect
    if dialect in ("vllm_native", "openai_completions"):
        asked = body.get("logprobs")
        return None if asked is None or asked is False else {_count(asked), *_by_text(body)}
    if dialect == "sglang_native":
        return {_count(body.get("top_logprobs_num"))} if body.get("return_logprob") is True else None
    if dialect == "google_genai":
        at = "/generationConfig/logprobs"
        on = value_at(body, "/generationConfig/responseLogprobs") is True
        return {_count(value_at(body, at))} if on else None
    if all(body.get(name) is None or body[name] is False for name in _ASKING_FIELDS):
        return None
    top = _count(body.get("top_logprobs"))
    whole = top == OPENAI_WIDEST and artifact.claim.engine.name not in ("vllm", "sglang")
    return {max(0, top - 1), *((top,) if whole else ()), *_by_text(body)}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _by_text(body: dict[str, object]) -> tuple[int, ...]:
    return () if body.get("return_tokens_as_token_ids") is True else (0,)


def _drawing(artifact: Artifact, stated: StatedRequest) -> Iterator[RequestFault]:
    """Fields under which the tokens were not drawn one after the other from the recorded sampling."""
    outer = artifact.request.body if isinstance(artifact.request.body, dict) else {}
    inner = outer.get("sampling_params")
    body = {**outer, **(inner if isinstance(inner, dict) else {})}
    for name in _GIVEN_TOKENS:
        given = body.get(name)
        if given:
            honoured = given == list(artifact.tokens.completion_ids or ())
            detail = f"the request gives the tokens ({name})"
            yield from (
                _open(f"{detail}; they were not drawn")
                if honoured
                else _wrong(f"{detail}, the record says that they were drawn")
            )
    for name in _UNRECORDED:
        if body.get(name) and not (name == "best_of" and body[name] == stated.n):
            yield from _open(f"the request states {name}, which the record has no place for")

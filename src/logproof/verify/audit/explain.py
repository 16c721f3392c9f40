"""S5: under which other prompt would the recorded logprobs fit better? An explanation of a rejection, never a test.

An executor that left out the system prompt, cut the context, or wrote the messages in another template saw other ids
than it claims. Each such prompt is replayed like the artifact itself, and the distances are compared.
Cannot see: prompts that are not among these; another model, which fits badly under all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from logproof.client.client import Client
from logproof.client.connect import Connection
from logproof.dialects.registry import get_dialect
from logproof.errors import EndpointError, InvalidRequest, RequestRefused
from logproof.ir.message import Role, text_message
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.verify.artifact.artifact import Artifact, artifact_columns
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.check_table import DISTRIBUTION, OTHER_PROMPT
from logproof.verify.replay.replay import replay
from logproof.verify.replay.retokenise import retokenise
from logproof.verify.stats import distance
from logproof.verify.stats.align import first_difference
from logproof.verify.stats.distance import Sigma
from logproof.verify.verdict import Finding, Verdict

WINDOWS = (0.75, 0.5, 0.25)
"""Shares of the prompt's end that a cut context might have kept."""
MUCH = 0.5
"""An alternative explains the record if its distance is at most this share of the claimed prompt's."""


class Alternative(msgspec.Struct, frozen=True):
    """Another prompt that the executor may have used. name: in words that follow "with"."""

    name: str
    prompt_ids: tuple[int, ...]


def windows(prompt_ids: Sequence[int]) -> list[Alternative]:
    """The prompt's end alone, for each of WINDOWS that leaves something out and something over."""
    sizes = {share: int(len(prompt_ids) * share) for share in WINDOWS}
    kept = {share: n for share, n in sizes.items() if 0 < n < len(prompt_ids)}
    return [Alternative(f"the last {share:.0%} of the prompt", tuple(prompt_ids[-n:])) for share, n in kept.items()]


def without(prompt_ids: Sequence[int], part: Sequence[int]) -> tuple[int, ...] | None:
    """The prompt less the first run of ids equal to `part`; None where there is none, or nothing else."""
    ids, gone = tuple(prompt_ids), tuple(part)
    if not 0 < len(gone) < len(ids):
        return None
    at = next((i for i in range(len(ids) - len(gone) + 1) if ids[i : i + len(gone)] == gone), None)
    return None if at is None else ids[:at] + ids[at + len(gone) :]


class _RecordedTurn(msgspec.Struct, frozen=True):
    role: Role
    content: str


class _Body(msgspec.Struct, frozen=True):
    messages: tuple[_RecordedTurn, ...]


def _turns(artifact: Artifact) -> tuple[_RecordedTurn, ...]:
    """The plain text messages of the recorded request; none where it holds other things, or was redacted."""
    try:
        return msgspec.convert(artifact.request.body, _Body).messages
    except msgspec.ValidationError:
        return ()


async def alternatives(artifact: Artifact, trusted: Connection) -> list[Alternative]:
    """The other prompts to try: cut windows; for chats no system message, an empty one, and no template.

    What the trusted engine cannot render or tokenise is left out. Raises what the tokenizer's calls raise.
    """
    prompt = artifact.tokens.prompt_ids or ()
    others, turns = windows(prompt), _turns(artifact)
    spoken = [t for t in turns if t.role != "system"]
    if spoken and len(spoken) < len(turns):
        # A template may put a system prompt of its own in the place of none.
        rendered = await _rendered(trusted, spoken)
        others += [Alternative("no system message", rendered)] if rendered else []
    if trusted.tokenizer is None or not turns:
        return others
    for turn in turns:
        ids = (await retokenise(trusted.tokenizer, turn.content)).ids if turn.role == "system" else ()
        rest = without(prompt, ids)
        if rest is not None:
            others.append(Alternative("an empty system message", rest))
    plain = (await retokenise(trusted.tokenizer, "\n".join(t.content for t in turns))).ids
    return [*others, Alternative("the messages without a template", plain)] if plain else others


async def _rendered(trusted: Connection, turns: Sequence[_RecordedTurn]) -> tuple[int, ...] | None:
    """Prompt ids of these messages by the trusted engine's own template; None where it does not tell."""
    messages = tuple(text_message(t.role, t.content) for t in turns)
    request = Request(
        trusted.model,
        Input(messages=messages),
        sampling=Sampling(max_tokens=1, temperature=0.0),
        scoring=Scoring(sampled=0),
    )
    client = Client(trusted.client.sender, get_dialect("openai_chat"), trusted.facts)
    try:
        ids = (await client.call(request)).response.prompt_ids
    except (EndpointError, InvalidRequest, RequestRefused):
        return None
    return None if ids is None else tuple(ids.tolist())


def explanation(own: Columns, claimed: Columns, others: Mapping[str, Columns], sigma: Sigma) -> Finding:
    """S5 from replays: `claimed` under the recorded prompt, `others` by name. Gains are falls of tz, above 0 better."""
    base = distance.tz(distance.pair(own, claimed), sigma)
    far = {name: distance.tz(distance.pair(own, c), sigma) for name, c in others.items()}
    numbers = {"tz": base, **{f"gain with {name}": base - value for name, value in far.items()}}
    best = min(far, key=lambda name: far[name], default=None)
    if best is None:
        detail = "no other prompt could be tried"
    elif far[best] <= MUCH * base:
        detail = f"with {best} the distance would be {far[best]:.3f} instead of {base:.3f}"
    else:
        detail = f"none of {len(far)} other prompts fits much better (distance {base:.3f}, best {far[best]:.3f})"
    return Finding(
        test=OTHER_PROMPT.id, outcome="note", detail=detail, n=len(own), statistic=numbers, blind=OTHER_PROMPT.blind
    )


async def explained(
    trusted: Connection, artifact: Artifact, claimed: ReplayResult, sigma: Sigma, verdict: Verdict
) -> Verdict:
    """The verdict with S5, if it was the distribution that failed; status and reasons stay. Raises what `replay` does.

    One replay an alternative; what the engine or its tokenizer fails on is left out.
    """
    if not any(f.test == DISTRIBUTION.id and f.outcome == "fail" for f in verdict.findings):
        return verdict
    own, answers = artifact_columns(artifact), dict[str, Columns]()
    try:
        tried = await alternatives(artifact, trusted)
    except EndpointError:
        tried = windows(artifact.tokens.prompt_ids or ())
    for other in tried:
        moved = replace(artifact, tokens=replace(artifact.tokens, prompt_ids=other.prompt_ids))
        answer = await replay(trusted, moved, claimed.method)
        if isinstance(answer, ReplayResult) and first_difference(own.sampled_ids, answer.columns.sampled_ids) is None:
            answers[other.name] = answer.columns
    finding = explanation(own, claimed.columns, answers, sigma)
    return replace(verdict, findings=(*verdict.findings, finding))

"""Verify: replay artifacts on a trusted engine and judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from logproof.client.connect import Connection
from logproof.parallel import in_order
from logproof.verify.artifact.artifact import Artifact, UnreadableRecord
from logproof.verify.artifact.known_request import KnownRequest, request_digest
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.audit.explain import explained
from logproof.verify.checks import recorded
from logproof.verify.checks.case import NOTHING_STATED, ServerStatement, trusted_facts
from logproof.verify.checks.end import may_end_by_text
from logproof.verify.checks.prompt_match import check_prompt
from logproof.verify.judge import judge, judge_unreadable
from logproof.verify.policy import Policy
from logproof.verify.replay.decode_text import completion_text
from logproof.verify.replay.prompt_ids import make_prompt, stated_prompt
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.verdict import Verdict


async def verify(
    trusted: Connection,
    artifact: Artifact,
    policy: Policy | None,
    method: MethodChoice = "auto",
    *,
    repeats: int = 1,
    fill: bool = False,
    explain: bool = False,
    known: KnownRequest | None = None,
    keys: tuple[str, ...] = (),
    server: ServerStatement = NOTHING_STATED,
) -> tuple[ReplayResult | ReplayFailure | None, Verdict]:
    """Replay one artifact and judge it. One that its own checks refuse never reaches the engine.

    method auto takes the policy's method where it can. repeats, fill: see `replay`. explain: where the distribution
    failed, try other prompts (explain.py), at one more replay each. known: the requester's own request. Its prompt ids
    are made on the trusted engine; a record of other ids is not replayed. keys, server: see `judge`.
    Raises AuthError, ModelNotFound, UsageError: the caller's matters.
    """
    answer, prompt, text, vocab_size = None, None, None, trusted.facts.vocab_size
    facts = trusted_facts(artifact, policy, vocab_size, keys)
    checked = recorded.check(artifact, facts)
    if checked.sound:
        request = artifact.request if known is None else known
        prompt = await make_prompt(trusted, request.path, request.body)
    if checked.replayable and check_prompt(artifact, known, prompt).outcome != "fail":
        preferred = None if policy is None else policy.method
        answer = await replay(trusted, artifact, method, preferred=preferred, repeats=repeats, fill=fill)
        text = await completion_text(trusted, artifact) if may_end_by_text(artifact, facts) else None
    verdict = judge(
        artifact,
        answer,
        policy,
        datetime.now(UTC),
        known=known,
        prompt=prompt,
        vocab_size=vocab_size,
        keys=keys,
        server=server,
        text=text,
    )
    if explain and isinstance(answer, ReplayResult) and policy is not None:
        verdict = await explained(trusted, artifact, answer, policy.sigma, verdict)
    return answer, verdict


async def verify_all(
    trusted: Connection,
    records: Sequence[Artifact | UnreadableRecord],
    policy: Policy | None,
    method: MethodChoice = "auto",
    *,
    repeats: int = 1,
    fill: bool = False,
    explain: bool = False,
    concurrency: int = 1,
    requests: Mapping[str, KnownRequest] | None = None,
    keys: tuple[str, ...] = (),
    server: ServerStatement = NOTHING_STATED,
) -> list[Verdict]:
    """The verdicts in order, at most `concurrency` replays in flight. Options and errors are those of `verify`.

    requests: the requester's own requests by their digests.
    """
    one = partial(verify, trusted, policy=policy, method=method, repeats=repeats, fill=fill, explain=explain)
    one = partial(one, keys=keys, server=server)
    jobs = [partial(one, a, known=request_of(a, requests or {})) for a in records if isinstance(a, Artifact)]
    judged, now = iter(await in_order(jobs, concurrency)), datetime.now(UTC)
    return [next(judged)[1] if isinstance(r, Artifact) else judge_unreadable(r, policy, now) for r in records]


def request_of(artifact: Artifact, requests: Mapping[str, KnownRequest]) -> KnownRequest | None:
    """The requester's request of the digest of the recorded one; None where the requester made no such request."""
    return requests.get(request_digest(artifact.request.path, artifact.request.body))


def verify_offline(
    records: Sequence[Artifact | UnreadableRecord],
    policy: Policy | None,
    requests: Mapping[str, KnownRequest] | None = None,
    keys: tuple[str, ...] = (),
    server: ServerStatement = NOTHING_STATED,
) -> list[Verdict]:
    """The verdicts of the tests that need no engine, in order. requests, keys, server: see `verify_all`."""
    now, verdicts = datetime.now(UTC), list[Verdict]()
    for record in records:
        if not isinstance(record, Artifact):
            verdicts.append(judge_unreadable(record, policy, now))
            continue
        known = request_of(record, requests or {})
        prompt = stated_prompt(record.request.path, record.request.body)
        verdicts.append(judge(record, None, policy, now, known=known, prompt=prompt, keys=keys, server=server))
    return verdicts

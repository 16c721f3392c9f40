"""The policy file: honest noise of one engine pair as measured, and the thresholds that follow from it.

`calibrate` writes one; `judge` reads it. It holds the calibration scores themselves, so any p-value can be recomputed,
the false-positive rate measured on held-out honest pairs, and the day after which it must not be used.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np

from logproof.errors import UsageError
from logproof.verify.artifact.artifact import Mode, ModelClaim, Record
from logproof.verify.artifact.number_format import LEAST_DENOMINATOR
from logproof.verify.check_table import DISTRIBUTION, SAMPLING, SEED, Check
from logproof.verify.requirements import Requirements
from logproof.verify.stats import conformal
from logproof.verify.stats.distance import Sigma
from logproof.verify.stats.sampler import Sampler

MAX_BYTES = 256 * 1024 * 1024
SHARES: dict[str, float] = {DISTRIBUTION.id: 1 / 3, SEED.id: 1 / 2, SAMPLING.id: 1 / 6}
"""How the level is split among the statistical tests that may reject one artifact: distribution, seed, sampling.

S2 holds two tests: its margins among honest ones have a third of the level, as S1 has, and its bet a sixth, as S3.
"""

LEVEL_ROUNDING = 1.0 + 1e-9
"""Factor on each share of the level, so that a p-value of 1/300 counts at a third of 1 %."""
MOST_EXACT = 0.01
"""Nats up to which a pair of engines may differ and be called exact."""
LEAST_SELFTEST = 1000
"""Tokens without a violation that show a sampler profile to be the engine's."""
CUT_SCALES = 3.0
"""Median honest residuals that make the slack at a cut. 3 is two rounding steps of bfloat16 where most tokens lie."""
MOST_SLACK = 0.5
"""Nats; noise beyond it says that the pair is none, and would leave no rivals."""

SCHEMA = "logproof-policy/2"
OLDER = ("logproof-policy/1",)
"""Formats of earlier policies, which say nothing of what a record must have."""


class PolicyEngine(Record, frozen=True, kw_only=True):
    """One side of the pair, or a kind of machine that calibration saw. processor: its name, where it was stated."""

    name: str | None = None
    version: str | None = None
    dtype: str | None = None
    device: str | None = None
    processor: str | None = None

    @property
    def words(self) -> str:
        """As a verdict names it."""
        engine = " ".join(p for p in (self.name or "an engine that was not named", self.version) if p)
        return ", ".join(p for p in (engine, self.dtype, self.processor or self.device) if p)


class Holdout(Record, frozen=True, kw_only=True):
    """Honest sequences that calibration did not use, and how many the finished policy rejected."""

    sequences: int
    alarms: int

    def interval(self) -> tuple[float, float]:
        """95 % Clopper-Pearson interval of the false-positive rate."""
        return conformal.clopper_pearson(self.alarms, self.sequences)


class NoiseFloor(Record, frozen=True, kw_only=True):
    """The same replay repeated on the trusted engine, first cold. All in nats; None where it was not measured.

    repeat: largest difference between sequential repeats, the cold one included. batch: the same under concurrency.
    spread: distinct results among the repeats.
    """

    repeat: float | None = None
    batch: float | None = None
    spread: int | None = None


class Rates(Record, frozen=True, kw_only=True):
    """Honest token counts. margins: by bin of redraw.margin_bins. out: outside the support, of `tokens`.

    greedy_step: one rounding step of the logits, nats; greedy_beyond: honest greedy tokens of `greedy_tokens` that lie
    further below the best than that.
    """

    margins: tuple[int, ...] = ()
    out: int = 0
    tokens: int = 0
    greedy_step: float = 0.125
    greedy_beyond: int = 0
    greedy_tokens: int = 0


class SelfTest(Record, frozen=True, kw_only=True):
    """S4 on the trusted engine's own records: shows that the sampler profile is the engine's."""

    profile: str
    tokens: int
    violations: int

    @property
    def passed(self) -> bool:
        """No violation in at least LEAST_SELFTEST tokens."""
        return self.tokens >= LEAST_SELFTEST and self.violations == 0


class Policy(Record, frozen=True, kw_only=True, dict=True):
    """level: target false-positive rate of a verdict. requires: what a record must have. machines: those that
    calibration saw; a failure of S1 says nothing about others.

    scores: bucket index -> statistic -> honest scores. exact: largest honest difference in nats where the pair is exact
    (then S1 is equality up to it), None where it is not. pin_model: unequal model digests are invalid, not
    inconclusive.
    eos_ids: ids that end honest completions, as measured; they overrule an artifact's claim. vocab_size: of the model,
    as the trusted engine tells it. least_denominator: units a nat of the coarsest fixed format that counts. Times are
    RFC 3339 in UTC.
    """

    schema: Literal["logproof-policy/2"]
    name: str
    created_at: str
    expires_at: str
    model_id: str
    weights_digest: str | None = None
    tokenizer_digest: str | None = None
    eos_ids: tuple[int, ...] | None = None
    vocab_size: int | None = None
    executor: PolicyEngine = PolicyEngine()
    verifier: PolicyEngine = PolicyEngine()
    method: Literal["prefill", "decode"]
    mode: Mode
    k: int
    level: float = 0.01
    requires: Requirements
    machines: tuple[PolicyEngine, ...] = ()
    sigma: Sigma
    scores: dict[str, dict[str, tuple[float, ...]]]
    rates: Rates = Rates()
    floor: NoiseFloor = NoiseFloor()
    holdout: dict[str, Holdout] = msgspec.field(default_factory=dict)
    selftest: SelfTest | None = None
    exact: float | None = None
    pin_model: bool = False
    least_denominator: int = LEAST_DENOMINATOR
    notes: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 hex over the policy as sorted JSON; computed once, as a policy never changes."""
        plain = json.dumps(msgspec.to_builtins(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()

    @property
    def machine_words(self) -> str:
        """The machines that calibration saw, in words."""
        return "; ".join(machine.words for machine in self.machines) or "none is named"

    @property
    def executor_dtype(self) -> str | None:
        """Format of the executor's logits: as stated, else the one that all honest records claimed."""
        seen = {machine.dtype for machine in self.machines}
        return self.executor.dtype or (seen.pop() if len(seen) == 1 else None)

    def level_of(self, check: Check) -> float:
        """Level of one statistical check of SHARES. S2g has that of S2."""
        return self.level * SHARES[check.id] * LEVEL_ROUNDING

    def cut_slack(self, sampler: Sampler) -> float:
        """By how much a replayed logprob may be off when S2 asks what the cuts leave, nats, at most MOST_SLACK.

        Honest noise moves tokens over the edge of top-k: of the rare honest tokens that lie outside, most do so by one
        rounding step. As impossible draws these would outweigh every margin of their text; so they count by their
        margin, like any other. Under top-p it would leave hardly a rival, since a share of mass adds up such errors of
        all tokens at once; there nothing is allowed.
        """
        if self.exact is not None:
            return self.exact
        return min(MOST_SLACK, CUT_SCALES * float(np.median(self.sigma.scales))) if sampler.top_p == 1.0 else 0.0

    def expired(self, now: datetime) -> bool:
        """Whether `now` is past the policy's last day."""
        return now > parse_time(self.expires_at)

    def calibration(self, statistic: str, length: int) -> tuple[float, ...]:
        """Honest scores of this statistic for sequences of this length; empty where there are none.

        Where they are too few for a p-value of S1's level, those of the longest shorter bucket that has enough stand
        in: scores of shorter texts spread wider, so they reject less.
        """
        if length < conformal.BUCKETS[0]:
            return ()
        buckets = range(conformal.bucket(length), -1, -1)
        known = [self.scores.get(str(b), {}).get(statistic, ()) for b in buckets]
        enough = conformal.needed(self.level_of(DISTRIBUTION))
        return next((scores for scores in known if len(scores) >= enough), known[0])


def other_model(model: ModelClaim, policy: Policy) -> str | None:
    """How the claimed model is known to be another than the policy's, in words; None where it is not."""
    pairs = (
        ("model id", model.id, policy.model_id),
        ("weights digest", model.weights_digest, policy.weights_digest),
        ("tokenizer digest", model.tokenizer_digest, policy.tokenizer_digest),
    )
    for name, claimed, known in pairs:
        if claimed is not None and known is not None and claimed != known:
            return f"{name} {claimed} is claimed, the policy is about {known}"
    return None


def parse_time(text: str) -> datetime:
    """An RFC 3339 time with its zone. Raises UsageError for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no RFC 3339 time") from None
    if moment.tzinfo is None:
        raise UsageError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)


def faults(policy: Policy) -> list[str]:
    """What makes the policy unusable, in words; empty where it is sound."""
    wrong = []
    if not 0.0 < policy.level < 0.5:
        wrong.append(f"level {policy.level} is not between 0 and 0.5")
    if policy.k < 1:
        wrong.append(f"k is {policy.k}")
    if policy.least_denominator < 1:
        wrong.append(f"least_denominator is {policy.least_denominator}")
    if policy.vocab_size is not None and policy.vocab_size < 1:
        wrong.append(f"vocab_size is {policy.vocab_size}")
    if len(policy.sigma.edges) + 1 != len(policy.sigma.scales) or min(policy.sigma.scales, default=0.0) <= 0.0:
        wrong.append("sigma needs one scale more than edges, all above 0")
    if list(policy.sigma.edges) != sorted(policy.sigma.edges):
        wrong.append("sigma edges do not rise")
    for name, table in policy.scores.items():
        wrong += [f"scores {name}.{k} hold a number that is not finite" for k, v in table.items() if not _finite(v)]
    if any(h.alarms > h.sequences or h.alarms < 0 for h in policy.holdout.values()):
        wrong.append("a holdout has more alarms than sequences")
    if policy.exact is not None and not 0.0 <= policy.exact <= MOST_EXACT:
        wrong.append(f"exact is {policy.exact} nats: a pair that far apart is not exact")
    wrong += policy.requires.faults()
    if parse_time(policy.expires_at) <= parse_time(policy.created_at):
        wrong.append("it expires before it was made")
    return wrong


def _finite(values: tuple[float, ...]) -> bool:
    return bool(np.isfinite(np.asarray(values, np.float64)).all())


class _PolicyHead(msgspec.Struct, frozen=True):
    """What tells a policy's format."""

    schema: str
    requires: object = None


def load(data: bytes) -> Policy:
    """A checked policy from JSON. Raises UsageError with every fault at once."""
    if len(data) > MAX_BYTES:
        raise UsageError(f"policy of {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        head = msgspec.json.decode(data, type=_PolicyHead)
        if head.schema in OLDER or (head.schema == SCHEMA and head.requires is None):
            raise UsageError("the policy is of an older format", hint="run logproof calibrate again")
        policy = msgspec.json.decode(data, type=Policy)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"policy is malformed: {error}") from None
    wrong = faults(policy)
    if wrong:
        raise UsageError(f"policy cannot be used: {'; '.join(wrong)}", hint="calibrate again")
    return policy


def dump(policy: Policy) -> bytes:
    """The policy as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(policy), indent=1)

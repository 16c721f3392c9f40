"""What the checks read of an artifact: its columns, the sampler that it claims, and the profile of its noise; and the
numbers that the verifier knows by itself, which no record overrules."""

from __future__ import annotations

import math

import msgspec

from logproof.verify.artifact.artifact import Artifact, Mode, RecordedSampling
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.completion_text import CompletionText
from logproof.verify.artifact.known_request import KnownRequest
from logproof.verify.artifact.number_format import LEAST_DENOMINATOR
from logproof.verify.policy import Policy, other_model
from logproof.verify.stats import sampler_profiles
from logproof.verify.stats.sampler import Sampler, claimed
from logproof.verify.stats.sampler_profiles import Profile

LEAST_TEMPERATURE = 0.01
"""What vLLM 0.25 to 0.32 takes for a temperature above 0 and below it (`SamplingParams`)."""


class ServerStatement(msgspec.Struct, frozen=True, kw_only=True):
    """What the verifier states of the executor's server, so that no record's word is taken for it.

    defaults: sampling leaf -> value where a request leaves it out. served_as: names of the claimed model there.
    """

    defaults: dict[str, object] = {}
    served_as: tuple[str, ...] = ()

    def stands_for(self, leaf: str, value: object) -> bool:
        """Whether the verifier states this default. Engines keep some numbers as float32."""
        stated = self.defaults.get(leaf)
        if isinstance(stated, int | float) and isinstance(value, int | float):
            return math.isclose(stated, value, rel_tol=1e-6, abs_tol=1e-9)
        return stated is not None and stated == value


NOTHING_STATED = ServerStatement()


class TrustedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the verifier knows of the claimed model and of how it is recorded, from policy and trusted engine.

    profile: a sampler profile that a self-test on the engine has shown. required_profile: the one that the claimed
    executor has, as the policy knows it; it overrules the claim. eos_ids: ids that end a completion, as
    measured; they overrule the claim. vocab_size: of the claimed model, None where neither tells it. dtype: of the
    logits of the policy's executor. least_denominator: units a nat of the coarsest fixed format.
    keys: public keys, hex, of which one must have signed the record; none is asked for where it is empty.
    known: the requester's own request. server: what the verifier states of the executor's server. text: of the
    completion, where its end needs it.
    """

    profile: str | None = None
    required_profile: str | None = None
    eos_ids: tuple[int, ...] | None = None
    vocab_size: int | None = None
    dtype: str | None = None
    least_denominator: int = LEAST_DENOMINATOR
    keys: tuple[str, ...] = ()
    known: KnownRequest | None = None
    server: ServerStatement = NOTHING_STATED
    text: CompletionText | None = None

    @property
    def own_record(self) -> bool:
        """Whether this process sent the request and wrote the record. What the operator states in it, of the claimed
        model and of defaults, is then the verifier's own word."""
        return self.known is not None and self.known.source == "own"


NOTHING_KNOWN = TrustedFacts()


def trusted_facts(
    artifact: Artifact,
    policy: Policy | None,
    vocab_size: int | None = None,
    keys: tuple[str, ...] = (),
    known: KnownRequest | None = None,
    server: ServerStatement = NOTHING_STATED,
    text: CompletionText | None = None,
) -> TrustedFacts:
    """What is known without the record. vocab_size: of the model that the trusted engine runs. known: the requester's
    own request. server: as the verifier states it. text: of the completion.

    keys: as required, else those of the policy. A policy about another model, and an engine without a policy, say
    nothing of the claimed model's vocabulary.
    """
    if policy is None:
        return TrustedFacts(keys=keys, known=known, server=server, text=text)
    tested = policy.selftest
    kind = policy.requires.kind_of(artifact.claim)
    same = other_model(artifact.claim.model, policy) is None
    size = policy.vocab_size if policy.vocab_size is not None else vocab_size
    return TrustedFacts(
        profile=tested.profile if tested is not None and tested.passed else None,
        required_profile=None if kind is None else kind.sampler_profile,
        eos_ids=policy.eos_ids,
        vocab_size=size if same else None,
        dtype=policy.executor_dtype,
        least_denominator=policy.least_denominator,
        keys=keys or policy.requires.key_ids,
        known=known,
        server=server,
        text=text,
    )


def drawn_by(
    artifact: Artifact, trusted_profile: str | None = None, required_profile: str | None = None
) -> tuple[Sampler | str, Profile | None]:
    """The sampler that the artifact claims, or why none can be replayed, and its profile, None where none counts.

    required_profile: overrules the profile that is claimed.
    """
    return _sampler(artifact), _profile(artifact, trusted_profile, required_profile)


def _sampler(artifact: Artifact) -> Sampler | str:
    """As the claimed engine takes what was sent. Of engines other than vLLM, SGLang reports processed logprobs before
    its cuts, so these do not give the draw."""
    sampling, mode = artifact.sampling, "unknown" if artifact.logprobs is None else artifact.logprobs.mode
    vllm = artifact.claim.engine.name == "vllm"
    if mode == "processed" and not vllm and has_cuts(sampling):
        return "only vLLM is known to report processed logprobs after its cuts"
    if vllm and sampling.temperature is not None and 0.0 < sampling.temperature < LEAST_TEMPERATURE:
        sampling = msgspec.structs.replace(sampling, temperature=LEAST_TEMPERATURE)
    return claimed(sampling, mode)


def has_cuts(sampling: RecordedSampling) -> bool:
    """Whether top-k, top-p or min-p may leave something out."""
    return bool(sampling.top_k) or (sampling.top_p is not None and sampling.top_p < 1.0) or bool(sampling.min_p)


def _profile(artifact: Artifact, trusted: str | None, required: str | None) -> Profile | None:
    """The required profile, else the named one, else the one that engine and version imply.

    Unproven ones count only if self-tested.
    """
    name = required if required is not None else artifact.claim.sampler_profile
    engine = artifact.claim.engine
    profile = (
        sampler_profiles.PROFILES.get(name)
        if name is not None
        else sampler_profiles.find(engine.name, engine.version, engine.runner, engine.device)
    )
    if profile is None or profile.noise is None:
        return None
    return profile if profile.proven or profile.id == trusted else None


class RecordedCase(msgspec.Struct, frozen=True, eq=False):
    """What the checks of a record read: a sound artifact with ids and logprobs, and what follows from its claim.

    columns: its rows. sampler: the claimed one, or why no draw can be repeated. profile: of the sampler's noise, None
    where none counts. facts: what the verifier knows by itself.
    """

    artifact: Artifact
    columns: Columns
    sampler: Sampler | str
    profile: Profile | None
    facts: TrustedFacts = NOTHING_KNOWN

    @property
    def step(self) -> float:
        """Largest rounding error of a recorded logprob, nats."""
        return 0.0 if self.artifact.logprobs is None else self.artifact.logprobs.step

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.artifact.tokens.prompt_ids or ())

    @property
    def vocab_size(self) -> int | None:
        """Size of the claimed model's vocabulary as the verifier knows it, None where it does not."""
        return self.facts.vocab_size

    def vocabulary_obstacle(self, *, redrawn: bool) -> str | None:
        """Why the claimed sampling is not judged: it takes the number of tokens that no row lists. None where it is.

        At temperature 1 the mass that a row leaves over is that of the unlisted tokens, however many they are. redrawn:
        the draw is repeated, which asks for their mass under top-p alone.
        """
        sampler = self.sampler
        if isinstance(sampler, str) or sampler.greedy or sampler.temperature == 1.0 or self.vocab_size is not None:
            return None
        if redrawn and sampler.top_p == 1.0:
            return None
        return "neither policy nor trusted engine tell how many tokens the vocabulary has"


class ReplayedCase(msgspec.Struct, frozen=True, eq=False):
    """What the checks of a replay read.

    verifier: the trusted engine's rows. scored: its rows that name every recorded token, for the distances alone.
    mode: of its logprobs.
    """

    record: RecordedCase
    verifier: Columns
    scored: Columns
    mode: Mode
    policy: Policy

"""What the checks read of an artifact: its columns, the sampler that it claims, and the profile of its noise."""

from __future__ import annotations

import msgspec

from logproof.verify.artifact.artifact import Artifact, Mode, RecordedSampling
from logproof.verify.artifact.columns import Columns
from logproof.verify.policy import Policy
from logproof.verify.stats import sampler_profiles
from logproof.verify.stats.sampler import Sampler, claimed
from logproof.verify.stats.sampler_profiles import Profile

LEAST_TEMPERATURE = 0.01
"""What vLLM 0.25 to 0.32 takes for a temperature above 0 and below it (`SamplingParams`)."""


def drawn_by(artifact: Artifact, trusted_profile: str | None = None) -> tuple[Sampler | str, Profile | None]:
    """The sampler that the artifact claims, or why none can be replayed, and its profile, None where none counts."""
    return _sampler(artifact), _profile(artifact, trusted_profile)


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


def _profile(artifact: Artifact, trusted: str | None) -> Profile | None:
    """The named profile, else the one that engine and version imply; unproven ones count only if self-tested."""
    name = artifact.claim.sampler_profile
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
    where none counts. eos_ids: ids that end a completion as measured on the trusted engine; they overrule the claim.
    """

    artifact: Artifact
    columns: Columns
    sampler: Sampler | str
    profile: Profile | None
    eos_ids: tuple[int, ...] | None = None

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
        """Size of the claimed model's vocabulary, None where it is not known."""
        return self.artifact.claim.model.vocab_size


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

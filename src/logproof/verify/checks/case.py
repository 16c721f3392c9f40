"""What the checks read of an artifact: its columns, the sampler that it claims, and the profile of its noise."""

from __future__ import annotations

import msgspec

from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns
from logproof.verify.check_table import STRUCTURE
from logproof.verify.stats import sampler_profiles
from logproof.verify.stats.sampler_profiles import Profile
from logproof.verify.stats.support import Sampler, claimed
from logproof.verify.verdict import Finding

LEAST_TEMPERATURE = 0.01
"""What vLLM 0.25 to 0.32 takes for a temperature above 0 and below it (`SamplingParams`)."""


def drawn_by(artifact: Artifact, trusted_profile: str | None = None) -> tuple[Sampler | str, Profile | None]:
    """The sampler that the artifact claims, or why none can be replayed, and its profile, None where none counts."""
    return _sampler(artifact), _profile(artifact, trusted_profile)


def _sampler(artifact: Artifact) -> Sampler | str:
    """As the claimed engine takes what was sent. Of engines other than vLLM, SGLang reports processed logprobs before
    its cuts, so these do not give the draw."""
    told, mode = artifact.sampling, "unknown" if artifact.logprobs is None else artifact.logprobs.mode
    vllm = artifact.claim.engine.name == "vllm"
    if mode == "processed" and not vllm and has_cuts(told):
        return "only vLLM is known to report processed logprobs after its cuts"
    if vllm and told.temperature is not None and 0.0 < told.temperature < LEAST_TEMPERATURE:
        told = msgspec.structs.replace(told, temperature=LEAST_TEMPERATURE)
    return claimed(told, mode)


def has_cuts(told: art.RecordedSampling) -> bool:
    """Whether top-k, top-p or min-p may leave something out."""
    return bool(told.top_k) or (told.top_p is not None and told.top_p < 1.0) or bool(told.min_p)


def _profile(artifact: Artifact, trusted: str | None) -> Profile | None:
    """The named profile, else the one that engine and version imply; unproven ones count only if self-tested."""
    name = artifact.claim.sampler_profile
    engine = artifact.claim.engine
    found = (
        sampler_profiles.PROFILES.get(name)
        if name is not None
        else sampler_profiles.find(engine.name, engine.version, engine.runner, engine.device)
    )
    if found is None or found.noise is None:
        return None
    return found if found.proven or found.id == trusted else None


class Offline(msgspec.Struct, frozen=True, eq=False):
    """What the artifact alone gives. columns is None where it cannot be replayed. profile: the sampler profile used."""

    findings: tuple[Finding, ...]
    columns: Columns | None
    sampler: Sampler | None
    profile: Profile | None
    bound: bool

    @property
    def replayable(self) -> bool:
        """Whether a replay makes sense: sound, with ids and logprobs."""
        return self.columns is not None and not any(
            f.outcome == "fail" and f.test == STRUCTURE.id for f in self.findings
        )

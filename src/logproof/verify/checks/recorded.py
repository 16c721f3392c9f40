"""The tests that need no engine: S0a structure, S6 end, S4 self-replay, S0b lattice, S0c sums. Milliseconds.

They run before any replay, so a malformed artifact never reaches an engine.
"""

from __future__ import annotations

import msgspec

from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.seeds import seed_is_bound
from logproof.verify.checks import end, mass, rounding, structure
from logproof.verify.stats import plausibility, redraw, sampler_profiles
from logproof.verify.stats.sampler_profiles import Profile
from logproof.verify.stats.support import GREEDY_BELOW, Sampler, bending, claimed
from logproof.verify.verdict import Finding, Reason

FLOAT_NOISE = 2e-6
"""Rounding of float32 logprobs of one row against each other, nats."""


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
        return self.columns is not None and not any(f.outcome == "fail" and f.test == "S0a" for f in self.findings)


def check(artifact: Artifact, trusted_profile: str | None = None, eos_ids: tuple[int, ...] | None = None) -> Offline:
    """Run the offline tests.

    trusted_profile: a sampler profile that a self-test on the engine has shown. eos_ids: ids that end a completion as
    measured on the trusted engine; they overrule the claim.
    """
    sound = _structure(artifact)
    bound = seed_is_bound(artifact.sampling.seed) and _choice_is_bound(artifact)
    if sound.outcome == "fail":
        return Offline((sound,), None, None, None, bound)
    missing = _missing(artifact)
    if missing is not None:
        return Offline((sound, _end(artifact, eos_ids), missing), None, None, None, bound)
    columns, spec = art.columns(artifact), artifact.logprobs
    step = 0.0 if spec is None else spec.step
    sampler, profile = drawn_by(artifact, trusted_profile)
    findings = [
        sound,
        _end(artifact, eos_ids, columns, sampler),
        _self_replay(artifact, columns, sampler, profile, step),
    ]
    findings += [_seed(artifact, bound), *_stated(artifact), *_lattice(artifact, columns), *_sums(artifact, columns)]
    known = None if isinstance(sampler, str) else sampler
    return Offline(tuple(findings), columns, known, profile, bound)


def drawn_by(artifact: Artifact, trusted_profile: str | None = None) -> tuple[Sampler | str, Profile | None]:
    """The sampler that the artifact claims, or why none can be replayed, and its profile, None where none counts."""
    return _sampler(artifact), _profile(artifact, trusted_profile)


LEAST_TEMPERATURE = 0.01
"""What vLLM 0.25 to 0.32 takes for a temperature above 0 and below it (`SamplingParams`)."""


def _sampler(artifact: Artifact) -> Sampler | str:
    """As the claimed engine takes what was sent. Of engines other than vLLM, SGLang reports processed logprobs before
    its cuts, so these do not give the draw."""
    told, mode = artifact.sampling, "unknown" if artifact.logprobs is None else artifact.logprobs.mode
    vllm = artifact.claim.engine.name == "vllm"
    if mode == "processed" and not vllm and _cuts(told):
        return "only vLLM is known to report processed logprobs after its cuts"
    if vllm and told.temperature is not None and 0.0 < told.temperature < LEAST_TEMPERATURE:
        told = msgspec.structs.replace(told, temperature=LEAST_TEMPERATURE)
    return claimed(told, mode)


def _cuts(told: art.RecordedSampling) -> bool:
    """Whether top-k, top-p or min-p may leave something out."""
    return bool(told.top_k) or (told.top_p is not None and told.top_p < 1.0) or bool(told.min_p)


def _structure(artifact: Artifact) -> Finding:
    blind = "anything wrong but consistent"
    found = structure.faults(artifact)
    if not found:
        signature = artifact.seal.signature if artifact.seal is not None else None
        signed = "" if signature is None else f", and is signed by {signature.key_id}"
        return Finding(test="S0a", outcome="pass", detail=f"the artifact obeys its own rules{signed}", blind=blind)
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    detail = f"{first.where} {first.detail}{more}"
    return Finding(test="S0a", outcome="fail", reason=first.reason, detail=detail, n=len(found), blind=blind)


def _missing(artifact: Artifact) -> Finding | None:
    if artifact.tokens.completion_ids is None or artifact.tokens.prompt_ids is None:
        detail = "only texts were recorded; retokenising them may give other tokens than were sampled"
        return Finding(test="S0a", outcome="unknown", reason="no_token_ids", detail=detail)
    if artifact.positions is None:
        return Finding(test="S0a", outcome="unknown", reason="no_logprobs", detail="ids were recorded without logprobs")
    return None


def _end(
    artifact: Artifact,
    eos_ids: tuple[int, ...] | None,
    columns: Columns | None = None,
    sampler: Sampler | str = "",
) -> Finding:
    """S6. columns, sampler: for how likely an end was; without them that is left open."""
    if eos_ids is not None:
        model = msgspec.structs.replace(artifact.claim.model, eos_ids=eos_ids)
        artifact = msgspec.structs.replace(artifact, claim=msgspec.structs.replace(artifact.claim, model=model))
    found = end.end_faults(artifact)
    wrong = [f.detail for f in found if f.kind == "contradiction"]
    open_ = [f.detail for f in found if f.kind == "unknown"]
    if wrong:
        return Finding(test="S6", outcome="fail", reason="termination", detail="; ".join(wrong))
    if open_:
        return Finding(test="S6", outcome="unknown", reason="end_unknown", detail="; ".join(open_))
    chances = None
    if columns is not None and not isinstance(sampler, str):
        chances = end.end_chances(artifact, columns, sampler)
    finding = Finding(test="S6", outcome="pass", detail="the end fits the claim", blind="an early stop on a likely end")
    if chances is None:
        return finding
    detail = f"{finding.detail}; {chances.words}"
    return msgspec.structs.replace(finding, detail=detail, n=len(chances.low), statistic=chances.numbers)


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


def seed_obstacle(artifact: Artifact, sampler: Sampler | str, profile: Profile | None) -> str | None:
    """Why the draw cannot be repeated, or None."""
    if isinstance(sampler, str):
        return sampler
    bent = bending(artifact.sampling, "raw" if artifact.logprobs is None else artifact.logprobs.mode)
    if bent and not sampler.greedy:
        return f"{bent[0]} bends the distribution that is drawn from"
    if artifact.claim.engine.spec_decode:
        return "speculative decoding uses the noise differently"
    if sampler.greedy:
        return None
    if artifact.sampling.seed is None:
        return "no seed is recorded"
    if drawn_seed(artifact) is None:
        return f"it is one of {artifact.choice.n} choices; how the claimed engine derives their seeds is not known"
    return None if profile is not None else "no sampler profile fits the claimed engine"


def drawn_seed(artifact: Artifact) -> int | None:
    """The seed that this choice was drawn with; None where there is none, or where it is not known how it follows.

    Of n choices vLLM draws the one with index i with the request's seed + i (`ParentRequest` of its V1 engine).
    """
    seed, choice = artifact.sampling.seed, artifact.choice
    if seed is None or (choice.n > 1 and artifact.claim.engine.name != "vllm"):
        return None
    return seed.value + choice.index


def _choice_is_bound(artifact: Artifact) -> bool:
    """Whether the executor could not choose which of many seeds its choice has: it is the only one, or the request
    that was recorded asks for as many."""
    body, n = artifact.request.body, artifact.choice.n
    return n == 1 or (isinstance(body, dict) and body.get("n") == n)


def _self_replay(
    artifact: Artifact, columns: Columns, sampler: Sampler | str, profile: Profile | None, step: float
) -> Finding:
    obstacle = seed_obstacle(artifact, sampler, profile)
    if obstacle is not None or isinstance(sampler, str):
        return Finding(test="S4", outcome="unknown", reason="sampler_unknown", detail=obstacle or "")
    if sampler.greedy:
        return _own_maximum(columns, step)
    seed = drawn_seed(artifact)
    if seed is None or profile is None:
        return Finding(test="S4", outcome="unknown", reason="sampler_unknown", detail="no seed or profile")
    prompt = len(artifact.tokens.prompt_ids or ())
    draw = redraw.redraw(columns, sampler, profile, seed, prompt, step=step, vocab_size=artifact.claim.model.vocab_size)
    return _violations(draw, columns)


def _violations(draw: redraw.Redraw, columns: Columns) -> Finding:
    blind = "a wrong model that is consistent with itself; seeds chosen to fit"
    judged = int(draw.known.sum())
    if judged == 0:
        return Finding(test="S4", outcome="unknown", reason="no_logprobs", detail="no sampled logprob is recorded")
    share = float((draw.mismatch & draw.known).sum()) / judged
    at = redraw.first_violation(draw)
    numbers = {"mismatch_share": share}
    if at is None:
        detail = f"{judged} recorded tokens are the draws from their own logprobs"
        return Finding(test="S4", outcome="pass", detail=detail, n=judged, statistic=numbers, blind=blind)
    what = "cannot be drawn" if draw.out[at] else f"loses to {draw.rivals[at]} by {draw.margin[at]:.4f}"
    detail = f"token {at} ({columns.sampled_ids[at]}) {what}"
    return Finding(
        test="S4", outcome="fail", reason="self_replay", detail=detail, n=judged, statistic=numbers, blind=blind
    )


def _own_maximum(columns: Columns, step: float) -> Finding:
    """Greedy: each sampled token is the best of its own row, up to the recorded rounding."""
    gaps = plausibility.greedy_gaps(columns)
    judged = int((gaps == gaps).sum())
    if judged == 0:
        return Finding(test="S4", outcome="unknown", reason="no_logprobs", detail="no sampled logprob is recorded")
    bad = (gaps > 2.0 * step + FLOAT_NOISE).nonzero()[0]
    if len(bad):
        at = int(bad[0])
        detail = f"greedy is claimed, but token {at} lies {gaps[at]:.4f} nat below its own row's best"
        return Finding(test="S4", outcome="fail", reason="self_replay", detail=detail, n=judged)
    blind = "a wrong model that is consistent with itself"
    detail = f"{judged} tokens are the best of their own rows"
    return Finding(test="S4", outcome="pass", detail=detail, n=judged, blind=blind)


def _seed(artifact: Artifact, bound: bool) -> Finding:
    seed = artifact.sampling.seed
    if bound:
        blind = "a requester who is in league with the executor"
        return Finding(test="seed", outcome="pass", detail="the executor did not choose the seed", blind=blind)
    detail = f"the seed's origin is {'absent' if seed is None else seed.origin}"
    if seed_is_bound(seed):
        detail = f"it is one of {artifact.choice.n} choices, for which the recorded request does not ask"
    return Finding(test="seed", outcome="unknown", reason="seed_unbound", detail=detail)


def _stated(artifact: Artifact) -> list[Finding]:
    """A note on sampling that the request did not name: a false statement about the server's defaults is not seen."""
    sources = artifact.sampling.sources
    named = sorted(n for n, s in sources.items() if s in ("engine", "generation_config", "operator"))
    if not named:
        return []
    told = ", ".join(f"{name} ({sources[name]})" for name in named)
    return [Finding(test="claim", outcome="note", detail=f"not in the request, but stated: {told}", n=len(named))]


def _lattice(artifact: Artifact, columns: Columns) -> list[Finding]:
    """S0b, a note: forged values may be put on the lattice, and some models have none."""
    dtype, spec = artifact.claim.numerics.dtype, artifact.logprobs
    step = rounding.STEPS.get(dtype or "")
    if spec is None or columns.width < 2 or (step is None and dtype != "float32"):
        return []
    if spec.step >= rounding.TOLERANCE:
        return []
    t = artifact.sampling.temperature or 1.0
    scale = t if spec.mode == "processed" else 1.0
    share = rounding.lattice_share(columns, step or rounding.STEPS["bfloat16"], scale)
    odd = share < 0.95 if step is not None else share > 0.5
    grid = dtype if step is not None else "bfloat16"
    detail = f"{share:.1%} of rows lie on the lattice of {grid}; {dtype} is claimed"
    told = rounding.read(columns, (t,)) if odd else None
    if told is not None:
        kind = "raw" if told.temperature == 1.0 else f"processed at temperature {told.temperature:g}"
        detail += f"; they look like {told.dtype}, {kind}"
    return [
        Finding(
            test="S0b",
            outcome="note",
            reason="lattice" if odd else None,
            detail=detail,
            n=len(columns),
            statistic={"lattice_share": share},
            blind="models that scale or cap logits, float32 heads, forged values",
        )
    ]


def _sums(artifact: Artifact, columns: Columns) -> list[Finding]:
    """S0c: a failure where processed logprobs are stated and cannot be, else a note where the two kinds differ."""
    spec, told = artifact.logprobs, artifact.sampling
    if spec is None or spec.mode == "constrained" or not columns.width or not _cuts(told):
        return []
    if artifact.claim.engine.name != "vllm":  # SGLang's are processed before its cuts, and sum to 1 over all tokens
        return []
    if told.temperature is None or told.temperature < GREEDY_BELOW:
        return []
    wrong = mass.not_processed(columns, spec.k, told.top_k or 0, spec.step)
    blind = "rows narrower than what was kept, forged sums"
    finding = Finding(test="S0c", outcome="note", detail="", n=len(columns), blind=blind)
    if spec.mode == "processed" and wrong.any():
        at = int(wrong.argmax())
        detail = (
            f"processed logprobs are stated, but {int(wrong.sum())} of {len(columns)} rows cannot be: row {at} lists"
            f" {columns.counts[at]} tokens of probability {columns.mass[at]:.4f} together; they look raw"
        )
        numbers = {"impossible_share": float(wrong.mean())}
        return [msgspec.structs.replace(finding, outcome="fail", reason="kind", detail=detail, statistic=numbers)]
    ones = mass.share_of_ones(columns)
    looks = "processed" if ones == 1.0 and spec.step < mass.CLOSE else "raw" if wrong.any() else None
    odd = looks is not None and looks != spec.mode
    detail = f"{ones:.1%} of rows sum to 1; {spec.mode} logprobs are stated{f', they look {looks}' if odd else ''}"
    numbers = {"ones_share": ones}
    reason: Reason | None = "kind" if odd else None
    return [msgspec.structs.replace(finding, reason=reason, detail=detail, statistic=numbers)]

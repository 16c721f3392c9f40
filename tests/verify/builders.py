"""A small model of the world for these tests: full-vocabulary logits, a slow sampler of its own, records of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

from logproof.verify.artifact.artifact import (
    Artifact,
    ChoiceRef,
    Claim,
    End,
    EngineClaim,
    LogprobsSpec,
    ModelClaim,
    Numerics,
    Positions,
    Producer,
    Provenance,
    RecordedSampling,
    RecordedUsage,
    Seed,
    Sent,
    TokenIds,
    seal,
)
from logproof.verify.artifact.columns import Columns, make_columns
from logproof.verify.artifact.known_request import KnownRequest, MadePrompt
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.judge import judge
from logproof.verify.policy import Policy, PolicyEngine
from logproof.verify.requirements import ExecutorKind, Level, NumberFormat, Requirements, SamplingRanges
from logproof.verify.stats import distance, sampler_noise
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Finding, Verdict

quick = settings(deadline=None, max_examples=40)
VOCAB = 200
EOS = 0
PLAIN = Sampler(1.0)
Array = NDArray[np.float64]


def from_maps(sampled_ids: Sequence[int], rows: Sequence[Mapping[int, float]]) -> Columns:
    """Columns from one {id: logprob} map a position; the sampled logprob is read from the map, NaN if absent."""
    drawn = [row.get(t) for t, row in zip(sampled_ids, rows, strict=True)]
    return make_columns(sampled_ids, drawn, [list(r) for r in rows], [list(r.values()) for r in rows])


def logits(n: int, seed: int, vocab: int = VOCAB, spread: float = 2.5) -> Array:
    """Random logits [n, vocab] as float32 values."""
    return np.random.default_rng(seed).normal(0, spread, (n, vocab)).astype(np.float32).astype(np.float64)


def log_softmax(z: Array) -> Array:
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def bfloat(z: Array, step: float = 1 / 32) -> Array:
    return np.round(z / step) * step


def masked(z: Array, sampler: Sampler) -> Array:
    """One row after temperature and cuts, token by token, as vLLM orders them; -inf where cut."""
    z = z / sampler.temperature
    p = np.exp(log_softmax(z))
    alive = p >= sampler.min_p * p.max()
    if sampler.top_k:
        best = sorted(z[alive], reverse=True)
        alive &= z >= best[min(sampler.top_k, len(best)) - 1]
    if sampler.top_p < 1.0:
        q = np.where(alive, np.exp(z - z.max()), 0.0)
        q = q / q.sum()
        order = sorted(range(len(z)), key=lambda t: -q[t])
        before, keep = 0.0, []
        for t in order:
            if before < sampler.top_p or not keep:
                keep.append(t)
            before += q[t]
        alive &= np.isin(np.arange(len(z)), keep)
    return np.where(alive, z, -np.inf)


def draw(z: Array, sampler: Sampler, seed: int) -> list[int]:
    """The SplitMix profile's draws from full rows."""
    if sampler.greedy:
        return [int(t) for t in z.argmax(axis=1)]
    every = np.arange(z.shape[1])[None, :].repeat(len(z), axis=0)
    noises = sampler_noise.splitmix_gumbel(sampler_noise.cpu_step_seeds(seed, len(z)), every)
    cut = sampler.top_k or sampler.top_p < 1.0 or sampler.min_p
    rows = np.array([masked(row, sampler) for row in z]) if cut else z / sampler.temperature
    return [int(t) for t in (rows + noises).argmax(axis=1)]


def record(z: Array, ids: list[int], k: int) -> Columns:
    """What an engine of float32 logits reports: the k best raw logprobs and the sampled token's."""
    raw = log_softmax(z).astype(np.float32).astype(np.float64)
    order = np.argsort(-raw, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(z))
    return make_columns(ids, raw[rows, ids], order.tolist(), np.take_along_axis(raw, order, 1).tolist())


def positions(columns: Columns) -> Positions:
    return Positions(
        sampled=tuple(None if np.isnan(v) else float(v) for v in columns.sampled_logprobs),
        ids=tuple(tuple(int(t) for t in row if t >= 0) for row in columns.ids),
        logprobs=tuple(tuple(float(v) for v in row if np.isfinite(v)) for row in columns.logprobs),
    )


def sampling(sampler: Sampler, seed: int | None, max_tokens: int) -> RecordedSampling:
    return RecordedSampling(
        temperature=sampler.temperature,
        top_p=sampler.top_p,
        top_k=sampler.top_k,
        min_p=sampler.min_p,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        logit_bias={},
        bad_words=(),
        allowed_ids=(),
        min_tokens=0,
        max_tokens=max_tokens,
        stop=(),
        stop_token_ids=(),
        ignore_eos=True,
        structured_output="",
        seed=None if seed is None else Seed(value=seed, origin="requester"),
    )


def body_of(sampling: RecordedSampling, k: int, **fields: object) -> dict[str, object]:
    """The body of a completion request that states every leaf of this sampling, and a seed that the executor did not
    choose; fields stand beside or replace them."""
    leaves: dict[str, object] = msgspec.json.decode(msgspec.json.encode(sampling))
    del leaves["sources"], leaves["structured_output"]
    leaves["allowed_token_ids"] = leaves.pop("allowed_ids")
    stated = sampling.seed is not None and sampling.seed.origin in ("requester", "derived")
    leaves["seed"] = sampling.seed.value if stated and sampling.seed is not None else None
    names = {"model": "tiny", "prompt": [1, 2, 3], "logprobs": k, "return_tokens_as_token_ids": True}
    return {**names, **leaves, **fields}


def artifact(
    columns: Columns,
    sampler: Sampler = PLAIN,
    seed: int | None = 7,
    *,
    k: int = 20,
    dtype: str | None = "float32",
    vocab: int | None = VOCAB,
) -> Artifact:
    """A sealed artifact of these columns that claims the SplitMix profile."""
    ids = tuple(int(t) for t in columns.sampled_ids)
    claimed = sampling(sampler, seed, len(ids))
    made = Artifact(
        schema="logproof-artifact/1",
        artifact_id="a-1",
        created_at="2026-01-02T03:04:05+00:00",
        producer=Producer(name="tests", version="0"),
        claim=Claim(
            model=ModelClaim(id="tiny", vocab_size=vocab, eos_ids=(EOS,)),
            numerics=Numerics(dtype=dtype),
            engine=EngineClaim(name="vllm", version="0.32.0", runner="v1", device="cpu"),
            sampler_profile="v1-cpu-splitmix",
        ),
        request=Sent(dialect="vllm_native", path="/v1/completions", body=body_of(claimed, k)),
        sampling=claimed,
        choice=ChoiceRef(n=1, index=0),
        logprobs=LogprobsSpec(mode="raw", k=k, format="float32"),
        tokens=TokenIds(prompt_ids=(1, 2, 3), completion_ids=ids),
        positions=positions(columns),
        end=End(finish_reason="length", usage=RecordedUsage(prompt=3, completion=len(ids))),
        provenance=Provenance(
            endpoint="http://engine", response_sha256=hashlib.sha256(b"reply").hexdigest(), fingerprint="fp-1"
        ),
    )
    return seal(made)


def change(made: Artifact, **fields: object) -> Artifact:
    """The artifact with fields replaced and sealed again, as a cheat would."""
    return seal(msgspec.structs.replace(made, **fields))


def requested(made: Artifact, n: int = 1, **leaves: object) -> Artifact:
    """The artifact of a request for n choices and other sampling leaves, None for those that it leaves out."""
    assert made.logprobs is not None
    sampling = msgspec.structs.replace(made.sampling, **leaves)
    body = body_of(sampling, made.logprobs.k, n=n)
    choice = msgspec.structs.replace(made.choice, n=n)
    return change(made, sampling=sampling, request=msgspec.structs.replace(made.request, body=body), choice=choice)


def noisy(z: Array, seed: int, size: float) -> Array:
    return z + np.random.default_rng(seed).normal(0, size, z.shape)


FLAT = distance.Sigma(edges=(-6.0, -3.0), scales=(0.05, 0.04, 0.03))


WIDE = SamplingRanges(
    greedy=True,
    temperature=(0.0001, 10.0),
    top_p=(0.01, 1.0),
    top_k=(1, 0),
    min_p=(0.0, 1.0),
    frequency_penalty=(0.0, 0.0),
    presence_penalty=(0.0, 0.0),
    repetition_penalty=(1.0, 1.0),
)
SPLITMIX = ExecutorKind(engine="vllm", version="0.32.0", runner="v1", device="cpu", sampler_profile="v1-cpu-splitmix")


FLOAT32 = NumberFormat(format="float32")
NUMBERS = (FLOAT32, *(NumberFormat(format="fixed", denominator=units) for units in (1024, 512)))


def requires(**fields: object) -> Requirements:
    """A bound seed, any sampling, and the executor and number formats of `artifact`; fields replace its own."""
    base = Requirements(seed="bound", sampling=WIDE, executors=(SPLITMIX,), numbers=NUMBERS)
    return msgspec.structs.replace(base, **fields)


LOOSE = requires(seed=None, executors=(ExecutorKind(),))
"""What judges a record by its evidence alone, whatever executor and seed it claims."""


def needing(level: Level) -> Requirements:
    """`LOOSE`, with this level."""
    return msgspec.structs.replace(LOOSE, level=level)


def policy(**fields: object) -> Policy:
    """An exact float32 policy; fields replace its own."""
    base = Policy(
        schema="logproof-policy/2",
        name="tiny",
        created_at="2026-01-01T00:00:00+00:00",
        expires_at="2026-12-31T00:00:00+00:00",
        model_id="tiny",
        executor=PolicyEngine(name="vllm", version="0.32.0", dtype="float32"),
        verifier=PolicyEngine(name="vllm", version="0.32.0", dtype="float32"),
        method="prefill",
        mode="raw",
        k=20,
        requires=requires(),
        machines=(PolicyEngine(name="vllm", version="0.32.0", dtype="float32", device="cpu"),),
        sigma=FLAT,
        scores={},
        exact=1e-4,
    )
    return msgspec.structs.replace(base, **fields)


def replayed(columns: Columns, **fields: object) -> ReplayResult:
    base = ReplayResult(
        method="prefill",
        method_reason="stock",
        mode="raw",
        columns=columns,
        endpoint="http://t",
        fingerprint="fp-1",
        vocab_size=VOCAB,
    )
    return msgspec.structs.replace(base, **fields)


def own_request(made: Artifact) -> KnownRequest:
    """The recorded request, as its requester knows it."""
    return KnownRequest(path=made.request.path, body=made.request.body, source="own")


def judged(
    made: Artifact,
    replay: ReplayResult | ReplayFailure | None,
    rules: Policy | None,
    now: datetime = datetime(2026, 6, 1, tzinfo=UTC),
) -> Verdict:
    """The verdict on a record that answers the requester's own request, whose prompt the verifier made likewise."""
    ids = made.tokens.prompt_ids
    prompt = MadePrompt(prompts=() if ids is None else (ids,), by="tests")
    return judge(made, replay, rules, now, known=own_request(made), prompt=prompt)


def finding(verdict: Verdict, test: str) -> Finding:
    return next(f for f in verdict.findings if f.test == test)

"""A small model of the world for these tests: full-vocabulary logits, a slow sampler of its own, records of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

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
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.policy import Policy, PolicyEngine
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
        request=Sent(dialect="vllm_native", path="/v1/completions", body={"temperature": sampler.temperature}),
        sampling=sampling(sampler, seed, len(ids)),
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


def noisy(z: Array, seed: int, size: float) -> Array:
    return z + np.random.default_rng(seed).normal(0, size, z.shape)


FLAT = distance.Sigma(edges=(-6.0, -3.0), scales=(0.05, 0.04, 0.03))


def policy(**fields: object) -> Policy:
    """An exact float32 policy; fields replace its own."""
    base = Policy(
        schema="logproof-policy/1",
        name="tiny",
        created_at="2026-01-01T00:00:00+00:00",
        expires_at="2026-12-31T00:00:00+00:00",
        model_id="tiny",
        executor=PolicyEngine(name="vllm", version="0.32.0", dtype="float32"),
        verifier=PolicyEngine(name="vllm", version="0.32.0", dtype="float32"),
        method="prefill",
        mode="raw",
        k=20,
        sigma=FLAT,
        scores={},
        exact=1e-4,
    )
    return msgspec.structs.replace(base, **fields)


def replayed(columns: Columns, **fields: object) -> ReplayResult:
    base = ReplayResult(
        method="prefill", method_reason="stock", mode="raw", columns=columns, endpoint="http://t", fingerprint="fp-1"
    )
    return msgspec.structs.replace(base, **fields)


def finding(verdict: Verdict, test: str) -> Finding:
    return next(f for f in verdict.findings if f.test == test)

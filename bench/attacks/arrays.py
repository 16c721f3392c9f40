"""From the worker's files to artifacts and replays. Pure, but for `load`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
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
    Producer,
    Provenance,
    RecordedSampling,
    RecordedUsage,
    Seed,
    Sent,
    TokenIds,
    positions_of,
    seal,
)
from logproof.verify.artifact.columns import Columns, sort_rows
from logproof.verify.artifact.replay_result import ReplayResult

K = 20
"""Entries recorded a position."""
VOCABULARY = 49152
EOS = 2
TOP_K = 50
CLAIM = Claim(
    model=ModelClaim(id="smollm2", vocab_size=VOCABULARY, eos_ids=(EOS,)),
    numerics=Numerics(dtype="bfloat16"),
    engine=EngineClaim(name="vllm", version="0.32.0", runner="v1", device="cpu", spec_decode=False),
)
SAMPLING = RecordedSampling(
    temperature=1.0,
    top_p=1.0,
    top_k=TOP_K,
    min_p=0.0,
    frequency_penalty=0.0,
    presence_penalty=0.0,
    repetition_penalty=1.0,
    logit_bias={},
    bad_words=(),
    allowed_ids=(),
    min_tokens=0,
    max_tokens=1,
    stop=(),
    stop_token_ids=(),
    ignore_eos=True,
    structured_output="",
)
"""What every artifact of the bench claims, true or not; max_tokens and seed are the record's own."""


class Record(msgspec.Struct, frozen=True, eq=False):
    """A completion as somebody recorded it, and what the verifier's prefill says about the same tokens.

    name: of the prompt. prompt: ids as claimed. own: the record's rows, K wide. replay: the verifier's, 64 wide.
    """

    name: str
    prompt: tuple[int, ...]
    seed: int
    own: Columns
    replay: Columns

    def head(self, n: int) -> Record:
        """Its first n tokens."""
        return msgspec.structs.replace(self, own=self.own.head(n), replay=self.replay.head(n))


def load(path: Path) -> list[Columns]:
    """The rows of one file, a Columns for each sequence."""
    with np.load(path) as file:
        ids, logprobs = file["ids"], file["logprobs"]
    return [rows(i, v) for i, v in zip(ids, logprobs, strict=True)]


def rows(ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> Columns:
    """Columns of [l, 1 + k] arrays whose entry 0 is the token itself."""
    table, values = ids.astype(np.int64), logprobs.astype(np.float64)
    return sort_rows(table[:, 0], values[:, 0], table[:, 1:].astype(np.float64), values[:, 1:])


def artifact(record: Record, **sampling: object) -> Artifact:
    """The sealed artifact of a record. sampling: leaves that it claims otherwise than SAMPLING."""
    ids = tuple(record.own.sampled_ids.tolist())
    seed = Seed(value=record.seed, origin="requester")
    claimed = msgspec.structs.replace(SAMPLING, **{"max_tokens": len(ids), "seed": seed, **sampling})
    made = Artifact(
        schema="logproof-artifact/1",
        artifact_id=record.name,
        created_at="2026-01-02T03:04:05+00:00",
        producer=Producer(name="attack bench", version="1"),
        claim=CLAIM,
        request=Sent(dialect="vllm_native", path="/v1/completions", body=body(record, claimed)),
        sampling=claimed,
        choice=ChoiceRef(n=1, index=0),
        logprobs=LogprobsSpec(mode="raw", k=K, format="float32"),
        tokens=TokenIds(prompt_ids=record.prompt, completion_ids=ids),
        positions=positions_of(record.own),
        end=End(finish_reason="length", usage=RecordedUsage(prompt=len(record.prompt), completion=len(ids))),
        provenance=Provenance(endpoint="in process"),
    )
    return seal(made)


def body(record: Record, sampling: RecordedSampling) -> dict[str, object]:
    """The request that asks for this sampling of the record's prompt."""
    leaves = msgspec.json.decode(msgspec.json.encode(sampling), type=dict[str, object])
    del leaves["sources"], leaves["structured_output"]
    leaves["allowed_token_ids"] = leaves.pop("allowed_ids")
    leaves["seed"] = None if sampling.seed is None else sampling.seed.value
    names = {"model": CLAIM.model.id, "prompt": list(record.prompt), "return_tokens_as_token_ids": True}
    return {**names, "logprobs": K, **leaves}


def replayed(record: Record) -> ReplayResult:
    """The verifier's prefill as `logproof replay` gives it."""
    return ReplayResult(
        method="prefill",
        method_reason="raw logprobs need one prefill, on any engine",
        mode="raw",
        columns=record.replay,
        endpoint="in process",
        engine="vllm",
        version="0.32.0",
    )


def records(
    names: Sequence[str],
    prompts: Sequence[tuple[int, ...]],
    seeds: Sequence[int],
    own: Sequence[Columns],
    replays: Sequence[Columns],
) -> list[Record]:
    """Records of matching sequences. Raises ValueError where a replay is of other tokens than its record."""
    made = [Record(*parts) for parts in zip(names, prompts, seeds, own, replays, strict=True)]
    for r in made:
        if not np.array_equal(r.own.sampled_ids, r.replay.sampled_ids):
            raise ValueError(f"{r.name}: the replay is of other tokens")
    return made

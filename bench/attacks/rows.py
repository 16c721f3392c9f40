"""The rows of the attack table: which records each is made of, and what the forger claims. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import forge
import msgspec
from arrays import Record, artifact
from measure import LENGTHS, Forge
from plan import GRIND_TRIES, SHORT

from logproof.verify.artifact.artifact import Artifact, Seed, seal

INFLATION = 1.1


class Row(msgspec.Struct, frozen=True, eq=False):
    """words: what was done. honest: whether it should not be rejected."""

    words: str
    records: Sequence[Record]
    forge: Forge = artifact
    lengths: Sequence[int] = LENGTHS
    honest: bool = False


PLAIN = (
    ("int8", "int8 weights"),
    ("fp8", "fp8 weights"),
    ("int4", "4-bit weights"),
    ("tuned", "another model: eight steps of fine-tuning"),
    ("layers", "another model: 28 of 30 layers"),
    ("warm", "temperature 1.1, 1.0 claimed"),
    ("greedy", "greedy, temperature 1.0 claimed"),
    ("top-p", "top-p 0.95, 1.0 claimed"),
    ("system", "another system prompt"),
    ("cut", "half of the notes cut from the prompt"),
)
PREFILLED = (
    ("int8", "pre-fill by int8, honest logprobs"),
    ("fp8", "pre-fill by fp8, honest logprobs"),
    ("int4", "pre-fill by 4-bit, honest logprobs"),
    ("tuned", "pre-fill by the fine-tuned model, honest logprobs"),
    ("layers", "pre-fill by 28 of 30 layers, honest logprobs"),
)


def rows(sets: Mapping[str, Sequence[Record]], unseen: Sequence[Record]) -> Iterator[Row]:
    """Every row whose sets are there. unseen: honest records that the policy did not see."""
    if "fp32" in sets:
        yield Row("honest float32 executor", sets["fp32"], honest=True)
    for name, words in PLAIN:
        if name in sets:
            yield Row(words, sets[name])
    for name, words in PREFILLED:
        if name in sets:
            yield Row(words, [forge.scored_honestly(r) for r in sets[name]])
    if all(f"int8-{i}" in sets for i in range(1, GRIND_TRIES)) and "int8" in sets:
        yield from _ground(sets)
    if "edited" in sets:
        yield from _edited(sets["edited"], unseen)
    yield Row("logprobs copied from another reply", [forge.copied(a, b) for a, b in _pairs(unseen)])
    yield Row("usage inflated by a tenth", unseen, inflated)
    for n in LENGTHS:
        longer = [r for r in sets.get("endless", ()) if forge.lengthened(r.head(n))]
        if longer:
            yield Row("end of text suppressed to lengthen the reply, where it was", longer, endless, (n,))


def _ground(sets: Mapping[str, Sequence[Record]]) -> Iterator[Row]:
    tries = [sets["int8"], *(sets[f"int8-{i}"] for i in range(1, GRIND_TRIES))]
    least = min(map(len, tries))
    honest = [[forge.scored_honestly(r) for r in one] for one in zip(*(t[:least] for t in tries), strict=True)]
    for n in LENGTHS:
        if n <= SHORT:
            words = f"pre-fill by int8, best of {GRIND_TRIES} seeds of its own"
            yield Row(words, [forge.best_of(t, n) for t in honest], own_seed, (n,))


def _edited(edited: Sequence[Record], unseen: Sequence[Record]) -> Iterator[Row]:
    """edited: the replays of edited tokens, whose own rows are those replays cut to size."""
    before = {r.name: r for r in unseen}
    kept = [
        msgspec.structs.replace(r, own=forge.with_tokens(before[r.name].own, r.own.sampled_ids))
        for r in edited
        if r.name in before
    ]
    yield Row("one token in 16 edited, logprobs kept", kept)
    yield Row("one token in 16 edited, scored again", edited)


def _pairs(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Each record with the next, the last with the first."""
    return list(zip(records, [*records[1:], *records[:1]], strict=True))


def inflated(record: Record) -> Artifact:
    """More tokens billed than recorded."""
    made = artifact(record)
    told = int(INFLATION * len(record.own)) + 1
    usage = msgspec.structs.replace(made.end.usage, completion=told)
    return seal(msgspec.structs.replace(made, end=msgspec.structs.replace(made.end, usage=usage)))


def endless(record: Record) -> Artifact:
    """Claims that an end of text would have ended it."""
    return artifact(record, ignore_eos=False)


def own_seed(record: Record) -> Artifact:
    """Says that the executor chose the seed, as it did."""
    return artifact(record, seed=Seed(value=record.seed, origin="executor"))

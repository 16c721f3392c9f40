"""What is drawn and scored: the sets of sequences behind the rows of the attack table, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import texts
from tokenizers import Tokenizer

from logproof.verify.artifact.seeds import derive_seed

LENGTH, SHORT = 256, 64
"""Tokens of a sequence; short ones save time where the answer is clear or 64 tokens are what is needed."""
GROUPS = (
    (0, 128, 128, LENGTH),
    (128, 128, 64, LENGTH),
    (256, 98, 98, SHORT),
    (384, 64, 16, SHORT),
    (720, 128, 128, LENGTH),
    (848, 128, 64, LENGTH),
    (976, 192, 64, SHORT),
    (1168, 96, 32, SHORT),
    (1264, 48, 16, SHORT),
)
"""First prompt, sequences, requests in flight and tokens of the honest groups."""
FIRST_ATTACK, END_ATTACK = 528, 720
"""The prompts of attacks, which no honest sequence has."""
CHUNK, CHUNKS = 16, 3
"""Attack sequences are drawn in chunks of so many, and there are prompts with notes for so many chunks."""
EOS = 2
GRIND_TRIES = 4
Kind = Literal["honest", "int8", "fp8", "int4", "layers", "tuned"]


class Set(msgspec.Struct, frozen=True, kw_only=True):
    """One set: what the executor really did. The claim is always bfloat16, T 1, top-k 50, SYSTEM and the whole notes.

    notes_only: takes prompts with notes. attempt: other seeds for the same prompts.
    """

    name: str
    kind: Kind = "honest"
    dtype: str = "bfloat16"
    temperature: float = 1.0
    top_p: float = 1.0
    system: str = texts.SYSTEM
    cut: bool = False
    notes_only: bool = False
    ban: tuple[int, ...] = ()
    attempt: int = 0
    length: int = LENGTH
    together: int = 128


SETS = (
    Set(name="int8", kind="int8"),
    Set(name="int4", kind="int4"),
    Set(name="warm", temperature=1.1),
    Set(name="greedy", temperature=0.0),
    Set(name="top-p", top_p=0.95, together=16),  # a sort of the whole vocabulary for all in its batch
    Set(name="system", system=texts.OTHER_SYSTEM),
    Set(name="cut", cut=True, notes_only=True),
    Set(name="endless", ban=(EOS,)),
    Set(name="tuned", kind="tuned", length=SHORT),
    Set(name="fp32", dtype="float32", length=SHORT),
    *(Set(name=f"int8-{i}", kind="int8", attempt=i, length=SHORT) for i in range(1, GRIND_TRIES)),
    Set(name="fp8", kind="fp8", length=SHORT),
    Set(name="layers", kind="layers", length=SHORT),
)


class Sequences(msgspec.Struct, frozen=True):
    """Names of the prompts, their ids as claimed and as really sent, and the seeds, all of one length."""

    names: tuple[str, ...]
    claimed: tuple[tuple[int, ...], ...]
    sent: tuple[tuple[int, ...], ...]
    seeds: tuple[int, ...]


class Prompter:
    """Token ids of prompts. source: the checkpoint folder."""

    def __init__(self, source: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))

    def ids(self, system: str, notes: str, asked: str) -> tuple[int, ...]:
        """A prompt's ids; special tokens are those of the template."""
        return tuple(self._tokenizer.encode(texts.chat(system, notes, asked), add_special_tokens=False).ids)

    def honest(self, group: int) -> Sequences:
        """The sequences of an honest group."""
        first, count, _, _ = GROUPS[group]
        numbers = range(first, first + count)
        prompts = tuple(self.ids(texts.SYSTEM, *texts.question(i)) for i in numbers)
        seeds = tuple(derive_seed("honest", str(i)) for i in numbers)
        return Sequences(tuple(f"h{i}" for i in numbers), prompts, prompts, seeds)

    def attack(self, chosen: Set, chunk: int) -> Sequences:
        """The sequences of one chunk of a set. Raises ValueError where the prompts of attacks do not reach so far."""
        step = 4 if chosen.notes_only else 1
        numbers = range(FIRST_ATTACK + step * CHUNK * chunk, FIRST_ATTACK + step * CHUNK * (chunk + 1), step)
        if numbers.stop > END_ATTACK:
            raise ValueError(f"chunk {chunk} of {chosen.name}: there are {CHUNKS}")
        asked = [texts.question(i) for i in numbers]
        sent = [self.ids(chosen.system, texts.cut(n) if chosen.cut else n, q) for n, q in asked]
        nonce = f"attack/{chosen.attempt}" if chosen.attempt else "attack"
        return Sequences(
            tuple(f"a{i}" for i in numbers),
            tuple(self.ids(texts.SYSTEM, n, q) for n, q in asked),
            tuple(sent),
            tuple(derive_seed(nonce, str(i)) for i in numbers),
        )

"""Task: how one benchmark row becomes an item, and what of an engine that takes.

A task is data: where its rows are, how a row and its few-shot rows become an item. Three kinds of item exist,
and the kind decides requests (plan/method.py) and scoring (score/outcome.py); a task file adds no code to either. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from logproof.errors import UsageError
from logproof.eval.tasks.rows import Row

Kind = Literal["ppl", "clp", "gen"]

R = TypeVar("R", bound=Row)


class PplItem(msgspec.Struct, frozen=True):
    """Options scored behind one context.

    context: ends in no white space. options: each as the row writes it, for lengths. continuations: the same
    with the white space that joins them. gold: index of the right one. neutral: the context of the
    unconditional sums, None where the task has none.
    """

    context: str
    options: tuple[str, ...]
    continuations: tuple[str, ...]
    gold: int
    neutral: str | None = None


class ClpItem(msgspec.Struct, frozen=True):
    """Labels scored as the token behind one prompt. labels: with their leading space. gold: index."""

    prompt: str
    labels: tuple[str, ...]
    gold: int


class GenItem(msgspec.Struct, frozen=True):
    """A text to be generated. stop: all stop strings that will be sent. gold: the right number, as written."""

    prompt: str
    stop: tuple[str, ...]
    max_tokens: int
    gold: str


Item = PplItem | ClpItem | GenItem


@dataclass(frozen=True)
class Task(Generic[R]):
    """One task.

    name: on the command line. dataset, split, shot_split: file `dataset.split.jsonl`. shots: few-shot rows by
    default. build: (row, its few-shot rows) -> item; pure, raises ValueError for a row that makes no item.
    eligible: whether a pool row may stand before a row. version: goes up whenever prompts or scores change.
    """

    name: str
    kind: Kind
    about: str
    dataset: str
    split: str
    shot_split: str
    shots: int
    row_type: type[R]
    build: Callable[[R, Sequence[R]], Item]
    eligible: Callable[[R, R], bool] = lambda row, candidate: True
    version: int = 1

    def identity(self) -> dict[str, object]:
        """What decides the task's prompts and scores, for digests."""
        return {"task": self.name, "version": self.version, "split": self.split, "shot_split": self.shot_split}


AnyTask = Task[Any]
"""A task whose row type is its own business."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run may change of its tasks.

    shots: few-shot rows, None for each task's own number. seed: of the few-shot draw. limit: rows, see
    datasets.count_limit. uncond: also score options behind the neutral context. top_k: width of the label
    fallback. max_tokens: of generation, None for the task's own. temperature: of generation. repeats: samples
    a row, each with a seed of its own, for generation tasks. bos: id that every prompt must begin with, once; None
    accepts what the engine's tokenizer does.
    """

    shots: int | None = None
    seed: int = 0
    limit: str | None = None
    uncond: bool = False
    top_k: int = 20
    max_tokens: int | None = None
    temperature: float = 0.0
    repeats: int = 1
    stream: bool = False
    bos: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("shots", 0), ("top_k", 1), ("max_tokens", 1), ("temperature", 0), ("repeats", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}, it must be at least {least}")
        if self.repeats > 1 and self.temperature == 0:
            raise UsageError("repeats at temperature 0 are all alike", hint="set a temperature above 0")


def blocks(parts: Sequence[str]) -> str:
    """Few-shot examples and the open question, separated by an empty line."""
    return "\n\n".join(parts)

"""Jobs: one task made ready for one connection, and its items and keys row by row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from logproof.errors import DatasetError
from logproof.eval.plan.method import TaskPlan
from logproof.eval.tasks import fewshot
from logproof.eval.tasks.datasets import Dataset, Doc
from logproof.eval.tasks.rows import Row
from logproof.eval.tasks.task import AnyTask, Item


class Job(msgspec.Struct, frozen=True, eq=False):
    """One task made ready. count: its rows under the limit. shots: few-shot rows of each item."""

    task: AnyTask
    plan: TaskPlan
    data: Dataset[Row]
    pool: list[Doc[Row]]
    shots: int
    count: int
    identity: str

    @property
    def samples(self) -> int:
        """Samples of the whole job, repeats included."""
        return self.count * self.repeats

    @property
    def repeats(self) -> int:
        """Samples a row: only generation differs from draw to draw."""
        return self.plan.settings.repeats if self.task.kind == "gen" else 1

    def docs(self) -> Iterator[Doc[Row]]:
        """The rows to run, in dataset order."""
        return self.data.docs(self.plan.settings.limit)

    def drawn(self, doc: Doc[Row]) -> list[Doc[Row]]:
        """The few-shot rows of a row."""
        candidates = [d for d in self.pool if self.task.eligible(doc.row, d.row)]
        return fewshot.draw(doc, candidates, self.shots, self.plan.settings.seed)

    def item(self, doc: Doc[Row]) -> Item:
        """The item of a row. Raises DatasetError for a row that makes none."""
        try:
            item: Item = self.task.build(doc.row, [d.row for d in self.drawn(doc)])
        except ValueError as error:
            raise DatasetError(f"{doc.where}: {error}") from None
        return item

    def key(self, doc: Doc[Row], repeat: int) -> str:
        """Identity of one sample in the store: SHA-256 of task identity, row content and repeat, hex."""
        return hashlib.sha256(f"{self.identity}/{doc.key}/{repeat}".encode()).hexdigest()

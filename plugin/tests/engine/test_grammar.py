"""The grammar guard on a stand-in grammar."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from logproof_vllm import canonical
from logproof_vllm.engine import grammar


def params(ids: list[int], mode: str | None = None, tag: str = "t") -> Any:
    return SimpleNamespace(extra_args={canonical.KEY: {"ids": ids, "mode": mode, "tag": tag}})


PLAIN = SimpleNamespace(extra_args=None)


class Row:
    """A bitmask row."""

    def __init__(self) -> None:
        self.value = 0

    def fill_(self, value: int) -> None:
        self.value = value


class Grammar:
    """Accepts the ids 0..9 in rising order and ends after 9."""

    def __init__(self) -> None:
        self.next = 0
        self.calls: list[str] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        for token in tokens:
            if token != self.next:
                return False
            self.next += 1
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return []

    def rollback(self, num_tokens: int) -> None:
        self.next -= num_tokens

    def fill_bitmask(self, bitmask: list[Row], batch_index: int) -> None:
        bitmask[batch_index].fill_(5)

    def is_terminated(self) -> bool:
        return self.next > 9

    def reset(self) -> None:
        self.next = 0


def test_a_guard_is_the_backends_grammar_until_it_breaks() -> None:
    guard = grammar.Guard(Grammar, "kept")
    rows = [Row(), Row()]
    guard.fill_bitmask(rows, 1)
    assert guard.accept_tokens("r", [0, 1])
    assert guard.validate_tokens([7]) == []
    guard.rollback(1)
    assert guard.accept_tokens("r", [1])
    assert [row.value for row in rows] == [0, 5]
    assert grammar.off_at("kept") is None


def test_a_broken_guard_allows_all_and_touches_only_its_row() -> None:
    guard = grammar.Guard(Grammar, "broken")
    assert guard.accept_tokens("r", [0, 1])
    assert guard.accept_tokens("r", [7])
    rows = [Row(), Row(), Row()]
    rows[1].value = 3
    guard.fill_bitmask(rows, 1)
    assert [row.value for row in rows] == [0, grammar.ALLOW_ALL, 0]
    assert guard.validate_tokens([9, 9]) == [9, 9]
    assert guard.accept_tokens("r", [4, 4])
    guard.rollback(2)
    assert not guard.is_terminated()
    assert grammar.off_at("broken") == 2
    assert grammar.off_at("broken") is None


def test_reset_restores_the_grammar() -> None:
    guard = grammar.Guard(Grammar, "again")
    guard.accept_tokens("r", [5])
    guard.reset()
    rows = [Row()]
    guard.fill_bitmask(rows, 0)
    assert rows[0].value == 5
    assert guard.validate_tokens([1]) == []
    guard.accept_tokens("r", [0])
    kept = guard.inner
    guard.reset()
    assert (guard.inner is kept, kept.next) == (True, 0)


def test_tokens_after_the_grammar_ended_do_not_break_it() -> None:
    guard = grammar.Guard(Grammar, "ended")
    assert guard.accept_tokens("r", list(range(10)))
    assert guard.is_terminated()
    assert guard.accept_tokens("r", [3])
    assert grammar.off_at("ended") is None


def test_the_record_of_broken_grammars_is_bounded() -> None:
    for i in range(grammar.KEPT + 5):
        grammar._record(f"n{i}", i)
    assert len(grammar._OFF) == grammar.KEPT
    assert grammar.off_at("n0") is None


def test_only_enforced_requests_get_a_guard() -> None:
    made = Grammar()
    create = grammar.wrap_create(lambda self, request: made, grammar.Guard)
    assert create(None, SimpleNamespace(sampling_params=PLAIN)) is made
    assert create(None, SimpleNamespace(sampling_params=params([]))) is made
    assert isinstance(create(None, SimpleNamespace(sampling_params=params([1]))), grammar.Guard)

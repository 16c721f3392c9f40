from __future__ import annotations

import msgspec
import pytest

from logproof.verify import artifact as art
from logproof.verify.termination import end_faults, ending_ids
from verify.builders import EOS, artifact, change, logits, record

replace = msgspec.structs.replace


def made(ids: list[int], finish: str | None, **sampling: object) -> art.Artifact:
    base = artifact(record(logits(len(ids), 1), ids, 3), k=3)
    settings = {"ignore_eos": False, "max_tokens": 4, **sampling}
    return change(base, sampling=replace(base.sampling, **settings), end=replace(base.end, finish_reason=finish))


@pytest.mark.parametrize(
    ("ids", "finish", "sampling"),
    [
        ([3, 4, 5, 6], "length", {}),
        ([3, 4, EOS], "stop", {}),
        ([3, 4, 9], "stop", {"stop_token_ids": (9,)}),
        ([3, 4], "stop", {"stop": ("END",)}),
        ([3, EOS, 4, 6], "length", {"ignore_eos": True}),
        ([3, EOS], "tool_calls", {}),
    ],
)
def test_sound_ends(ids: list[int], finish: str, sampling: dict[str, object]) -> None:
    assert end_faults(made(ids, finish, **sampling)) == []


@pytest.mark.parametrize(
    ("ids", "finish", "sampling", "words"),
    [
        ([3, 4, 5, 6, 7], "length", {}, "5 tokens, max_tokens is 4"),
        ([3, 4], "length", {}, "after 2 tokens, max_tokens is 4"),
        ([3, EOS, 4, 6], "length", {}, "token 1"),
        ([3, 9, 4, 6], "length", {"stop_token_ids": (9,)}, "token 1"),
        ([3, 4], "stop", {}, "ends nothing"),
        ([3, 4, 5, EOS], "length", {}, "finish is length, but"),
        ([3, EOS], "stop", {"min_tokens": 3}, "min_tokens is 3"),
    ],
)
def test_contradictions(ids: list[int], finish: str, sampling: dict[str, object], words: str) -> None:
    found = end_faults(made(ids, finish, **sampling))
    assert [f.kind for f in found] == ["contradiction"]
    assert words in found[0].detail


@pytest.mark.parametrize(
    ("finish", "sampling", "words"),
    [
        (None, {}, "no finish reason"),
        ("content_filter", {}, "finish is content_filter"),
        ("length", {"max_tokens": None}, "max_tokens is unresolved"),
        ("stop", {"stop": None}, "unresolved"),
        ("stop", {"ignore_eos": None}, "unresolved"),
    ],
)
def test_unknown_ends(finish: str | None, sampling: dict[str, object], words: str) -> None:
    found = end_faults(made([3, 4, 5, 6], finish, **sampling))
    assert [f.kind for f in found] == ["unknown"]
    assert words in found[0].detail


def test_texts_only() -> None:
    base = made([3], "length")
    bare = replace(base, tokens=art.TokenIds(prompt_ids=None, completion_ids=None))
    assert [f.kind for f in end_faults(bare)] == ["unknown"]


def test_ending_ids() -> None:
    base = made([3], "length", stop_token_ids=(9,))
    assert ending_ids(base) == {EOS, 9}
    assert ending_ids(made([3], "length", ignore_eos=True)) == frozenset()
    assert ending_ids(made([3], "length", stop_token_ids=None)) is None
    model = replace(base.claim.model, eos_ids=None)
    assert ending_ids(change(base, claim=replace(base.claim, model=model))) is None

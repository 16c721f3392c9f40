from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from eval.toy import ToyEngine, connection, ready, run
from logproof.errors import UsageError
from logproof.eval.tasks.option_prompts import ppl_item
from logproof.eval.tasks.rows import ArcRow, Choices, Gsm8kRow, HellaswagRow, MmluRow, Row
from logproof.eval.tasks.task import PplItem, Settings, Task, blocks
from logproof.eval.tasks.task_list import TASKS, arc_easy_ppl, get_task, gsm8k_gen, hellaswag_ppl, mmlu_clp

ARC = ArcRow("1", "Why is it? ", Choices(["cold", " wet"], ["1", "2"]), "2")


def test_arc_prompts() -> None:
    item = arc_easy_ppl.build(ARC, [ARC])
    assert item.context == "Question: Why is it?\nAnswer: wet\n\nQuestion: Why is it?\nAnswer:"
    assert item.continuations == (" cold", " wet")
    assert item.options == ("cold", "wet")
    assert item.gold == 1
    assert item.neutral == "Answer:"


def test_hellaswag_prompts_join_and_clean() -> None:
    row = HellaswagRow(
        1, "Tea", "x", ["[step] Pour  it.", "Run."], "0", ctx_a="[header] Make tea [title] Boil.", ctx_b="she"
    )
    item = hellaswag_ppl.build(row, [row])
    scene = "Tea: Make tea. Boil. She"
    assert item.context == f"{scene} Pour it.\n\n{scene}"
    assert item.continuations == (" Pour it.", " Run.")
    assert item.neutral is None


def test_hellaswag_without_parts_takes_the_whole_scene() -> None:
    item = hellaswag_ppl.build(HellaswagRow(1, "Tea", "she pours. the cup", ["a", "b"], "0"), [])
    assert item.context == "Tea: she pours. the cup"


def test_an_ending_of_markup_only_makes_no_item() -> None:
    with pytest.raises(ValueError, match="empty"):
        hellaswag_ppl.build(HellaswagRow(1, "Tea", "c", ["[step]", "b"], "0"), [])


def test_mmlu_prompts_list_lettered_choices() -> None:
    row = MmluRow("What?", "world_geography", ["x", "y", "z"], 2)
    item = mmlu_clp.build(row, [row])
    ask = "What?\nA. x\nB. y\nC. z\nAnswer:"
    head = "The following are multiple choice questions (with answers) about world geography."
    assert item.prompt == f"{head}\n\n{ask} C\n\n{ask}"
    assert item.labels == (" A", " B", " C")
    assert mmlu_clp.TASK.eligible(row, row)
    assert not mmlu_clp.TASK.eligible(row, MmluRow("What?", "biology", ["x", "y"], 0))


def test_gsm8k_prompts_show_working_and_state_their_stop() -> None:
    row = Gsm8kRow("How many?", "1 + 1 = 2\n#### 2\n")
    item = gsm8k_gen.build(row, [row])
    assert item.prompt == "Question: How many?\nAnswer: 1 + 1 = 2\n#### 2\n\nQuestion: How many?\nAnswer:"
    assert item.stop == ("Question:",)
    assert (item.gold, item.max_tokens) == ("2", 256)


@pytest.mark.parametrize(
    ("context", "options"),
    [("Answer:", [" Paris", " Rome"]), ("Answer: ", ["Paris", "Rome"]), ("Answer:", ["Paris", "Rome"])],
)
def test_white_space_at_the_join_belongs_to_the_option_however_it_is_spelled(context: str, options: list[str]) -> None:
    item = ppl_item(context, options, 0)
    assert (item.context, item.continuations, item.options) == ("Answer:", (" Paris", " Rome"), ("Paris", "Rome"))


def test_other_white_space_at_the_join_is_kept() -> None:
    assert ppl_item("Code:\n", ["x", "y"], 0).continuations == ("\nx", "\ny")
    assert ppl_item("Code:", ["\tx", "y"], 0).continuations == ("\tx", " y")


@pytest.mark.parametrize(("context", "options"), [("", ["a", "b"]), (" \n", ["a", "b"]), ("c", ["a", " "])])
def test_empty_sides_make_no_item(context: str, options: list[str]) -> None:
    with pytest.raises(ValueError, match="empty"):
        ppl_item(context, options, 0)


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown task 'arc_easy'") as caught:
        get_task("arc_easy")
    assert "did you mean arc_easy_ppl?" in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        get_task("zzz")
    assert "known tasks: arc_easy_ppl" in str(caught.value.hint)


def test_the_registry_is_keyed_by_name() -> None:
    assert all(name == task.name for name, task in TASKS.items())


@pytest.mark.parametrize(
    "wrong", [{"shots": -1}, {"top_k": 0}, {"max_tokens": 0}, {"temperature": -1.0}, {"repeats": 0}, {"repeats": 2}]
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Settings(**wrong)


class WordRow(Row, frozen=True):
    """A row of a task of somebody else."""

    word: str
    opposite: str

    def content(self) -> tuple[str, ...]:
        return (self.word,)

    def check(self) -> None:
        pass


def test_a_task_is_one_small_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(row: WordRow, shots: Sequence[WordRow]) -> PplItem:
        solved = [f"{s.word} {s.opposite}" for s in shots]
        return ppl_item(blocks([*solved, row.word]), [row.opposite, row.word], 0)

    task = Task(
        name="words_ppl",
        kind="ppl",
        about="opposites",
        dataset="words",
        split="test",
        shot_split="train",
        shots=1,
        row_type=WordRow,
        build=build,
    )
    monkeypatch.setitem(TASKS, "words_ppl", task)
    (tmp_path / "words.test.jsonl").write_text('{"word": "hot", "opposite": "cold"}\n')
    (tmp_path / "words.train.jsonl").write_text('{"word": "big", "opposite": "small"}\n')
    conn = connection(ToyEngine())
    ended, sink = run(conn, ready(conn, "words_ppl", data=str(tmp_path)))
    assert (ended.ran, ended.failed) == (1, 0)
    assert set(sink.samples[0].scores) == {"acc", "acc_char", "acc_byte", "acc_token"}
    assert sink.calls[0].request.input.text == "big small\n\nhot cold"

"""The story "Add a task" of CONTRIBUTING.md, followed with a small task."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from eval.toy import ToyEngine, serving
from logproof.cli.main import run
from logproof.eval.tasks import datasets, task_list
from logproof.store.run_store import RunStore

ROOT = Path(__file__).resolve().parents[3]

MODULE = '''
"""Capitals: the capital of a country, each choice scored behind a question."""

from collections.abc import Sequence

from logproof.eval.tasks.option_prompts import ppl_item
from logproof.eval.tasks.rows import Row
from logproof.eval.tasks.task import PplItem, Task, blocks


class CapitalRow(Row, frozen=True):
    """A country and cities, the capital first."""

    country: str
    cities: list[str]

    def content(self) -> tuple[str, ...]:
        return (self.country, *self.cities)

    def check(self) -> None:
        if len(self.cities) < 2:
            raise ValueError("fewer than two cities")


def build(row: CapitalRow, shots: Sequence[CapitalRow]) -> PplItem:
    solved = [f"{_ask(s)} {s.cities[0]}" for s in shots]
    return ppl_item(blocks([*solved, _ask(row)]), row.cities, 0, neutral="Answer:")


def _ask(row: CapitalRow) -> str:
    return f"Question: What is the capital of {row.country}?\\nAnswer:"


TASK = Task(
    name="capitals_ppl",
    kind="ppl",
    about="capitals of countries, cities scored",
    dataset="capitals",
    split="test",
    shot_split="train",
    shots=1,
    row_type=CapitalRow,
    build=build,
)
'''

ROWS = {
    "test": [("Peru", ["Lima", "Cusco"]), ("Kenya", ["Nairobi", "Mombasa", "Kisumu"])],
    "train": [("Japan", ["Tokyo", "Osaka"])],
}


def write_rows(folder: Path) -> None:
    folder.mkdir()
    for split, rows in ROWS.items():
        lines = [json.dumps({"country": country, "cities": cities}) for country, cities in rows]
        (folder / f"capitals.{split}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def capitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the new task, imported and entered in the list."""
    (tmp_path / "capitals_ppl.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("capitals_ppl")
    monkeypatch.setitem(task_list.TASKS, "capitals_ppl", module.TASK)
    return module


def test_a_task_runs_from_the_command_to_its_report(
    capitals: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "rows")
    engine = ToyEngine()
    with serving(engine) as fake:
        assert run(["eval", "capitals_ppl", "-m", fake.url, "--data", "rows", "--out", "run", "--uncond"]) == 0
    shown = capsys.readouterr().out
    assert "capitals_ppl" in shown
    assert "acc_uncond" in shown
    solved = "Question: What is the capital of Japan?\nAnswer: Tokyo\n\n"
    prompts = {body["prompt"] for body in engine.seen}
    assert f"{solved}Question: What is the capital of Peru?\nAnswer: Lima" in prompts
    with RunStore.read(tmp_path / "run") as store:
        assert [(s.row_id, s.status) for s in store.samples()] == [
            ("capitals.test.jsonl:1", "ok"),
            ("capitals.test.jsonl:2", "ok"),
        ]


def test_rows_put_beside_the_others_need_no_data_option(
    capitals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "data")
    monkeypatch.setattr(datasets.resources, "files", lambda package: tmp_path)
    with serving(ToyEngine()) as fake:
        assert run(["eval", "capitals_ppl", "-m", fake.url, "--out", "run"]) == 0


def test_a_bad_row_and_a_wrong_name_are_told(
    capitals: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "capitals.test.jsonl").write_text('{"country": "Peru", "cities": ["Lima"]}\n')
    assert run(["eval", "capitals_ppl", "--data", str(tmp_path)]) == 3
    assert "capitals.test.jsonl:1: fewer than two cities" in capsys.readouterr().err
    assert run(["eval", "capital_ppl"]) == 3
    assert "did you mean capitals_ppl?" in capsys.readouterr().err


def test_the_files_of_the_story_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    story = text[text.index("## Add a task") :].split("\n## ")[0]
    paths = re.findall(r"`((?:src|tests)/[^`]+)`", story)
    assert len(paths) >= 5
    for path in paths:
        place = ROOT / path
        assert (place.parent if re.search(r"[A-Z]{4}", place.name) else place).exists(), path
    for name in re.findall(r"`([a-z0-9_]+\.py)`", story):
        assert (ROOT / "src" / "logproof" / "eval" / "tasks" / name).is_file(), name

"""Another vLLM version: what CONTRIBUTING.md tells to do is possible, and nothing is left to remember."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from logproof_vllm import contract
from logproof_vllm.contract import SURFACE, V1_VERSIONS, V2_VERSIONS, Surface
from logproof_vllm.server import serve

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugin" / "src" / "logproof_vllm"
STORY = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a vLLM version")[2].partition("\n## ")[0]
PATCHES = sorted(path for path in (PACKAGE / "engine").glob("*.py") if path.stem != "__init__")
VERSION = re.compile(r"\b0\.\d+\.\d+\b")


@pytest.mark.parametrize("path", [*PATCHES, PACKAGE / "server" / "ingestion.py"], ids=lambda path: path.stem)
def test_every_patch_says_when_to_delete_it(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert re.search(r"^Delete when: \S", docstring, re.MULTILINE)


@pytest.mark.parametrize("row", SURFACE, ids=lambda row: row.path)
def test_every_row_has_a_reason_and_a_removal_condition(row: Surface) -> None:
    assert row.reason
    assert row.removal


def test_no_surface_has_two_rows() -> None:
    assert len({row.path for row in SURFACE}) == len(SURFACE)


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [("docs/plugin.md", "One code path for V1 on ", ":"), ("plugin/README.md", "Runs with vLLM ", ";")],
)
def test_the_documents_name_the_versions_of_the_contract(name: str, start: str, end: str) -> None:
    sentence = (ROOT / name).read_text().partition(start)[2].partition(end)[0]
    assert tuple(VERSION.findall(sentence)) == V1_VERSIONS


def test_the_second_runner_is_claimed_only_on_versions_that_are_claimed() -> None:
    minors = {contract.minor(version) for version in V1_VERSIONS}
    assert {contract.minor(version) for version in V2_VERSIONS} <= minors
    table = (ROOT / "docs" / "plugin.md").read_text().partition("## Model Runner V2")[2].partition("\n## ")[0]
    assert f"On {' and '.join(V2_VERSIONS)} an adapter" in table


def test_the_version_after_the_newest_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    major, newest = contract.minor(V1_VERSIONS[-1])
    version = f"{major}.{newest + 1}.0"
    monkeypatch.setattr(contract, "vllm_version", lambda: version)
    (line,) = contract.check()
    assert line == serve.refusal(version)
    assert line.startswith(f"vLLM {version} was never tried with the plugin; install one of {contract.supported()}")
    assert "'Add a vLLM version' in logproof's CONTRIBUTING.md" in line
    assert STORY


def test_every_file_that_the_story_names_exists() -> None:
    names = [name for name in re.findall(r"`([\w./-]+)`", STORY) if "/" in name]
    assert len(names) > 8
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_every_name_that_the_story_tells_to_edit_is_in_the_contract() -> None:
    for name in ("V1_VERSIONS", "V2_VERSIONS", "SURFACE"):
        assert f"`{name}`" in STORY
        assert hasattr(contract, name)

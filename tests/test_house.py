"""The house: folders that one can read, one name for one thing, tests that mirror the source, checked purity."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "src" / "logproof", ROOT / "plugin" / "src" / "logproof_vllm")
DIALECT_FILES = {"request", "messages", "reply", "stream"}
MOST_MODULES = 15
MOST_LINES = 400
OWN_TESTS = {"bench", "fakes", "formats", "live", "replies"}
"""Folders of tests that stand for no room."""


def modules(source: Path) -> list[Path]:
    return sorted(p for p in source.rglob("*.py") if p.stem not in ("__init__", "__main__"))


def classes(path: Path) -> Iterator[str]:
    return (n.name for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ClassDef))


def name_in_package(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_no_folder_is_a_warehouse(source: Path) -> None:
    counts = Counter(p.parent for p in modules(source))
    assert {str(f.relative_to(ROOT)): n for f, n in counts.items() if n > MOST_MODULES} == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_no_file_is_long(source: Path) -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in modules(source)}
    assert {p: n for p, n in lengths.items() if n > MOST_LINES} == {}


def test_a_module_name_stands_for_one_thing() -> None:
    """Only a dialect's own files and the file of a command may bear a name that occurs elsewhere."""
    places: dict[str, list[str]] = {}
    for path in modules(SOURCES[0]):
        inner = path.relative_to(SOURCES[0])
        if inner.parts[0] == "cli" or (inner.parts[0] == "dialects" and path.stem in DIALECT_FILES):
            continue
        places.setdefault(path.stem, []).append(str(inner))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_no_class_name_occurs_twice(source: Path) -> None:
    places: dict[str, list[str]] = {}
    for path in [*modules(source), *source.rglob("__init__.py")]:
        for name in classes(path):
            places.setdefault(name, []).append(str(path.relative_to(source)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_tests_mirror_the_source() -> None:
    tests = ROOT / "tests"
    folders = {p.parent.relative_to(tests) for p in tests.rglob("test_*.py")}
    strays = {f for f in folders if f.parts and f.parts[0] not in OWN_TESTS and not (SOURCES[0] / f).is_dir()}
    assert strays == set()


def test_whatever_calls_itself_pure_is_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    checked = next(c for c in contracts if c["id"] == "pure")["source_modules"]
    said = [
        name_in_package(p)
        for p in SOURCES[0].rglob("*.py")
        if " Pure" in (ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))) or "").replace("\n", " ")
    ]
    assert [m for m in said if not any(m == c or m.startswith(f"{c}.") for c in checked)] == []

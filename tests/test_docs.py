"""The generated reference is the one that the code gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "make_docs.py"


def _script():
    spec = importlib.util.spec_from_file_location("make_docs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE_DOCS = _script()


@pytest.mark.parametrize("name", ["dialects.md", "commands.md", "errors.md", "artifact.md", "artifact.schema.json"])
def test_page_is_current(name):
    assert (MAKE_DOCS.FOLDER / name).read_text(encoding="utf-8") == MAKE_DOCS.pages()[name], "run make docs"

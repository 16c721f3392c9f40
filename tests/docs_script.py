"""scripts/make_docs.py as a module, for tests of what it writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "make_docs.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE_DOCS = _script()

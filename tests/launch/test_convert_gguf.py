from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from logproof.launch import small_model


def test_the_script_writes_a_checkpoint(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    script = str(Path(small_model.__file__).with_name("convert_gguf.py"))
    monkeypatch.setattr(sys, "argv", [script, "m.gguf", str(tmp_path / "made")])
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.modules.pop("transformers", None)
    assert json.loads((tmp_path / "made/config.json").read_text()) == {"dtype": "bfloat16"}

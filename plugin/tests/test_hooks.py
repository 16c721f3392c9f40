"""Hooks that wait for an import."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from logproof_vllm import hooks


def test_an_action_waits_for_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module_x.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []
    hooks.when_imported("late_module_x", seen.append)
    assert not seen
    import late_module_x

    assert [module.value for module in seen] == [1]
    hooks.when_imported("late_module_x", seen.append)
    assert seen == [late_module_x, late_module_x]

"""The contract table against the recorded syntax facts of every claimed version (remade by contract_wheels.py)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from logproof_vllm import contract
from logproof_vllm.contract import SURFACE, V1_VERSIONS, Surface

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "contract_facts.json").read_text())


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contract_wheels", HERE.parent / "scripts" / "contract_wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", V1_VERSIONS)
@pytest.mark.parametrize("row", SURFACE, ids=lambda row: row.path)
def test_every_row_holds_in_every_claimed_version(row: Surface, version: str) -> None:
    assert script().problems(row, version, FACTS[version]) == []


def test_a_reformatted_file_keeps_its_fact_and_a_changed_one_does_not() -> None:
    tools = script()
    code = "class Sampler:\n    def sample(self, logits, md):\n        '''Doc.'''\n        return logits\n"
    same = code.replace("'''Doc.'''", "'''Other.'''").replace("return logits", "return   logits  # note")
    changed = code.replace("return logits", "return md")
    hashes = [
        tools.fact(tools.find({"m.py": text}.get, "m", "Sampler.sample"))["code"] for text in (code, same, changed)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_names_are_found_through_re_exports_and_bases() -> None:
    tools = script()
    files = {
        "p/__init__.py": "from p.a import f\n", "p/a.py": "def f(x, *, y): ...\nclass B:\n    def g(self, z): ...\n",
        "p/b.py": "from p.a import B\nclass C(B):\n    k: int\n",
    }  # fmt: skip
    assert tools.fact(tools.find(files.get, "p", "f"))["parameters"] == ["x", "y"]
    assert tools.fact(tools.find(files.get, "p.b", "C.g"))["parameters"] == ["z"]
    assert tools.fact(tools.find(files.get, "p.b", "C"))["fields"] == ["k"]
    assert tools.find(files.get, "p.b", "C.missing") is None


class Odd:
    field: int

    def method(self, a: int, b: int) -> None: ...


def row(**values: Any) -> Surface:
    base: dict[str, Any] = {"module": __name__, "name": "Odd.method", "reason": "r", "removal": "x"}
    return Surface(**(base | values))


def test_the_run_time_check_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "odd_module", ModuleType("odd_module"))
    sys.modules["odd_module"].__dict__["Odd"] = Odd
    good = row(module="odd_module", parameters=("a", "b"))
    assert list(contract.check_row(good)) == []
    assert "takes (a, b)" in next(contract.check_row(row(module="odd_module", parameters=("b",))))
    assert "is missing" in next(contract.check_row(row(module="odd_module", name="Odd.other")))
    assert "is missing" in next(contract.check_row(row(module="no_such_module")))
    fields = row(module="odd_module", name="Odd", fields=("field", "method", "nothing"))
    assert list(contract.check_row(fields)) == ["odd_module:Odd has no nothing"]


@pytest.mark.parametrize("version", ["0.26.0", "0.33.0", "1.0.0", "dev"])
def test_versions_never_tried_are_broken_with_a_line(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "vllm_version", lambda: version)
    assert len(contract.check()) == 1


def test_v2_knows_which_versions_it_covers() -> None:
    assert contract.v2_refusal("0.32.0") is None
    assert contract.v2_refusal("0.31.0") is None
    for version in ("0.30.0", "0.3.2", "0.33.0", "0.320.0"):
        assert "0.31, 0.32" in str(contract.v2_refusal(version))


@pytest.mark.live
def test_the_installed_vllm_is_the_one_whose_facts_are_recorded() -> None:
    """Its code, not only its signatures: a patched or patched-over engine would differ."""
    tools = script()
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent.parent
    assert tools.facts_of(tools.folder_reader(root)) == FACTS[contract.vllm_version()]


@pytest.mark.live
def test_the_installed_vllm_passes_the_check() -> None:
    assert contract.check() == []

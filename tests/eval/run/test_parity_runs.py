from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from eval.toy import ToyEngine, serving
from logproof.client.connect import Options
from logproof.errors import UsageError
from logproof.eval.run.parity_runs import ParitySide, parity_runs, run_parity
from logproof.eval.run.run import Order, RunResult, run_order
from logproof.eval.tasks.task import Settings


def order(root: Path) -> Order:
    return Order(entries=[("arc_easy_ppl", Settings(limit="2", shots=0))], out=root)


def sides(url_a: str, url_b: str) -> tuple[ParitySide, ParitySide]:
    return ParitySide(url_a, Options(dialect="vllm_native")), ParitySide(url_b, Options(dialect="vllm_native"), True)


@pytest.mark.parametrize(
    ("controls", "names"),
    [((False, False), "a b"), ((True, False), "a b control"), ((True, True), "a b control control-b")],
)
def test_each_run_has_its_directory_and_only_b_streams(tmp_path: Path, controls: tuple[bool, bool], names: str) -> None:
    a, b = sides("http://127.0.0.1:1", "http://127.0.0.1:2")
    runs = parity_runs(order(tmp_path), a, b, control=controls[0], control_b=controls[1])
    assert [run.name for run in runs] == names.split()
    assert [run.order.out for run in runs] == [tmp_path / name for name in names.split()]
    assert all(run.order.entries[0][1].stream == run.name.endswith("b") for run in runs)


def test_an_unknown_dialect_is_refused(tmp_path: Path) -> None:
    a, b = sides("http://127.0.0.1:1", "http://127.0.0.1:1")
    b = msgspec.structs.replace(b, options=Options(dialect="vllm_nativ"))
    with pytest.raises(UsageError, match="vllm_nativ"):
        parity_runs(order(tmp_path), a, b, control=False, control_b=False)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_check_from_python_is_kept_unless_a_run_was_interrupted(tmp_path: Path, interrupted: bool) -> None:
    lines: list[str] = []

    async def carry_out(order: Order, urls: Sequence[str], options: Options, label: str) -> RunResult:
        result = await run_order(order, urls, options, announce=lines.append)
        ended = msgspec.structs.replace(result.ended, interrupted=interrupted)
        return msgspec.structs.replace(result, ended=ended)

    with serving(ToyEngine()) as fake:
        runs = parity_runs(order(tmp_path), *sides(fake.url, fake.url), control=True, control_b=False)
        parity = asyncio.run(run_parity(runs, tmp_path, 0.0, carry_out=carry_out, announce=lines.append))
    assert (parity is None) == interrupted
    assert (tmp_path / "parity.json").exists() != interrupted
    assert parity is None or (parity.verdict, parity.noise is not None) == ("agree", True)
    assert any(line.startswith("toy at") for line in lines)
    assert any("begins with token" in line for line in lines)

from __future__ import annotations

from pathlib import Path

import pytest

from logproof.errors import StoreError, UsageError
from logproof.eval.plan.run_file import parse
from logproof.eval.run.model_orders import model_orders, worst_exit_code
from logproof.eval.run.pace import MOST

TEXT = """
out: {out}
tasks: [gsm8k_gen]
settings: {{limit: 2, shots: 0}}
models:
  - {{label: one, url: "http://127.0.0.1:1", timeout: 9}}
  - {{label: two, url: ["http://127.0.0.1:2", "http://127.0.0.1:3"], name: served}}
concurrency: {width}
fail_fast: true
accept: [a]
"""


def text(out: Path, width: object = 4) -> bytes:
    return TEXT.format(out=out, width=width).encode()


def test_each_model_has_its_directory_endpoints_and_options(tmp_path: Path) -> None:
    one, two = model_orders(parse(text(tmp_path), "f"), resume=True, accept=["b"])
    assert (one.label, one.order.out, one.options.timeouts.total) == ("one", tmp_path / "one", 9)
    assert (two.urls, two.options.model) == (["http://127.0.0.1:2", "http://127.0.0.1:3"], "served")
    assert (one.order.resume, list(one.order.accept)) == (True, ["a", "b"])
    assert (one.order.policy.max_failures, one.options.concurrency) == (0, 4)
    assert model_orders(parse(text(tmp_path, "auto"), "f"))[0].options.concurrency == MOST


def test_all_models_are_checked_before_any_is_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a timeout is seconds above 0"):
        model_orders(parse(text(tmp_path).replace(b"timeout: 9", b"timeout: 0"), "f"))
    with pytest.raises(UsageError, match="named twice"):
        model_orders(parse(text(tmp_path).replace(b":3", b":2"), "f"))
    (tmp_path / "two").write_text("in the way")
    with pytest.raises(StoreError, match="two is a file"):
        model_orders(parse(text(tmp_path), "f"))


@pytest.mark.parametrize(("codes", "worst"), [([], 0), ([0, 2], 2), ([2, 1, 0], 1), ([1, 4, 2], 4)])
def test_the_worst_exit_code_wins(codes: list[int], worst: int) -> None:
    assert worst_exit_code(codes) == worst

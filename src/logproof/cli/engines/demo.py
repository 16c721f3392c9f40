"""`logproof demo`: the main job from end to end on an engine of this machine.

Engine up; the four tasks over vllm_native; the same over openai_completions and over vllm_native again as
control, compared token by token; a table and a page with token logprobs; engine down.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.engines.start_progress import start_with_progress
from logproof.cli.evaluate.parity import print_parity
from logproof.cli.evaluate.run_with_progress import print_result, run_with_progress
from logproof.cli.options import connection
from logproof.cli.printing import note, out
from logproof.errors import StoreError
from logproof.eval.report.parity import CONTROL, FILE, RUN_A, RUN_B, parity_of, write_parity
from logproof.eval.report.run_report import report_run
from logproof.eval.run.run import Order
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.launch import EngineSpec, stop_engine

TASKS = ("arc_easy_ppl", "hellaswag_ppl", "mmlu_clp", "gsm8k_gen")
NATIVE, CLASSIC = "vllm_native", "openai_completions"
PAGE = "tokens.html"
GENERATION_ROWS = "8"
"""Rows of the generation task: it alone would take most of the time."""


def demo(
    directory: Annotated[Path, typer.Option("--out", help="Where the demo's runs and page go.")] = Path("runs/demo"),
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="URL", help="Use this engine instead.")] = None,
    limit: Annotated[str | None, typer.Option("--limit", help="Rows a task; else all shipped rows.")] = None,
) -> int:
    """Start an engine, run four tasks, prove two wires equal, write a page, stop the engine."""
    began = time.monotonic()
    _clear(directory)
    if model is not None:
        code = _run(model, directory, limit)
    else:
        _say("engine", "a real vLLM, float32, SmolLM2-135M-Instruct")
        engine = start_with_progress(EngineSpec(name="demo", dtype="float32"))
        try:
            code = _run(engine.url, directory, limit)
        finally:
            _say("engine", "down")
            stop_engine(engine)
    words = {0: "all as it should be", 130: "interrupted"}.get(code, "not as it should be")
    out.print(f"demo: {words}, {_since(began)}")
    return code


def _run(url: str, directory: Path, limit: str | None) -> int:
    """The three runs and what they show. The exit code of the first of them that is not 0."""
    entries = [(task, Settings(limit=limit or (GENERATION_ROWS if task == "gsm8k_gen" else None))) for task in TASKS]
    code = 0
    for name, dialect in ((RUN_A, NATIVE), (RUN_B, CLASSIC), (CONTROL, NATIVE)):
        _say(f"run {name}", f"{', '.join(TASKS)} over {dialect}")
        order = Order(entries=entries, out=directory / name, policy=RunPolicy(concurrency=2))
        options = connection(dialect, concurrency=8)
        result = asyncio.run(run_with_progress(order, [url], options, name))
        code = code or (print_result(result, False) if name == RUN_A else result.report.exit_code)
        if result.ended.interrupted:
            return 130
    _say("parity", f"{NATIVE} against {CLASSIC}, every input token")
    parity = parity_of(directory, tolerance=0.0)
    write_parity(parity, directory)
    print_parity(parity, False)
    page = directory / PAGE
    report_run(directory / RUN_A, page=page)
    _say("page", f"token logprobs of some prompts: {page}")
    return code or parity.exit_code


def _say(phase: str, text: str) -> None:
    note(f"[{phase}] {text}")


def _since(began: float) -> str:
    seconds = round(time.monotonic() - began)
    return f"{seconds // 60} min {seconds % 60} s"


def _clear(directory: Path) -> None:
    """Make room for a demo: only what an earlier demo wrote is taken away. Raises StoreError for anything else."""
    own = {RUN_A, RUN_B, CONTROL, PAGE, FILE}
    names = {p.name for p in directory.iterdir()} if directory.is_dir() else set()
    if names - own:
        raise StoreError(f"{directory} holds other files ({min(names - own)})", hint="name another place with --out")
    if names:
        shutil.rmtree(directory)

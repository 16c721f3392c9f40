"""`logproof eval`: tasks into a run store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.evaluate.run_options import (
    DEFAULT_URL,
    AutoConcurrency,
    Data,
    Limit,
    MaxTokens,
    Models,
    Out,
    Patience,
    Seed,
    Shots,
    Tasks,
    TopK,
    Uncond,
)
from logproof.cli.evaluate.run_with_progress import print_result, run_with_progress
from logproof.cli.options import (
    AsJson,
    DialectName,
    Drop,
    Header,
    KeyEnv,
    ModelName,
    Timeout,
    TokenizerPath,
    connection,
)
from logproof.cli.printing import fail
from logproof.client.outage import PATIENCE_S
from logproof.errors import EngineGone, UsageError, clip
from logproof.eval.plan.run_file import load
from logproof.eval.run.model_orders import model_orders, worst_exit_code
from logproof.eval.run.pace import Width, most_at_a_time
from logproof.eval.run.run import Order
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.store.catalog import new_run_directory

BESIDE_CONFIG = {"config", "resume", "accept", "as_json"}
"""Options that may be given beside a run file."""


def evaluate(
    context: typer.Context,
    task: Tasks = None,
    model: Models = None,
    dialect: DialectName = "auto",
    data: Data = None,
    limit: Limit = None,
    shots: Shots = None,
    seed: Seed = 0,
    concurrency: AutoConcurrency = "8",
    directory: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    accept: Annotated[list[str] | None, typer.Option("--accept", help="New fingerprint to accept.")] = None,
    uncond: Uncond = False,
    top_k: TopK = 20,
    max_tokens: MaxTokens = None,
    temperature: Annotated[float, typer.Option("--temperature", help="Of generation.")] = 0.0,
    bos: Annotated[int | None, typer.Option("--bos", help="Token id that every prompt must begin with, once.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Draws a row of generation tasks.")] = 1,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="End at the first failed sample.")] = False,
    max_failures: Annotated[int | None, typer.Option("--max-failures", min=0, help="Failed samples allowed.")] = None,
    patience: Patience = PATIENCE_S,
    canary: Annotated[bool, typer.Option(help="Score a fixed prompt at start, middle and end.")] = True,
    log: Annotated[Path | None, typer.Option("--log", help="File that gets one JSON line an event.")] = None,
    metrics: Annotated[int | None, typer.Option("--metrics", min=0, help="Port for Prometheus, on 127.0.0.1.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML run file, instead of the options.")] = None,
    model_name: ModelName = None,
    key_env: KeyEnv = None,
    header: Header = None,
    timeout: Timeout = None,
    tokenizer: TokenizerPath = None,
    drop: Drop = None,
    as_json: AsJson = False,
) -> int:
    """Run tasks over one model, or as a run file says, and report."""
    if config is not None:
        _refuse_beside_config(context)
        return _run_file(config, resume, accept or [], as_json)
    settings = Settings(
        shots=shots, seed=seed, limit=limit, uncond=uncond, top_k=top_k, max_tokens=max_tokens,
        temperature=temperature, repeats=repeats, bos=bos,
    )  # fmt: skip
    order = Order(
        entries=[(name, settings) for name in task or []],
        out=directory or new_run_directory("eval"),
        source=data,
        policy=RunPolicy(width := _concurrency(concurrency), 0 if fail_fast else max_failures, patience),
        resume=resume,
        accept=accept or (),
        canary=canary,
        log=log,
        metrics=metrics,
    )
    options = connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer, drop=drop,
        concurrency=most_at_a_time(width),
    )  # fmt: skip
    return print_result(asyncio.run(run_with_progress(order, model or [DEFAULT_URL], options)), as_json)


def _concurrency(text: str) -> Width:
    """Read the option. Raises UsageError."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--concurrency takes a number of at least 1, or auto, not {clip(text, 40)!r}")
    return int(text)


def _refuse_beside_config(context: typer.Context) -> None:
    """Raise UsageError where an option is given that the run file has a key for: nobody would read it."""
    named = {name for name in context.params if (by := context.get_parameter_source(name)) and by.name != "DEFAULT"}
    surplus = [p for p in context.command.params if p.name in named - BESIDE_CONFIG]
    if surplus:
        names = ", ".join(p.opts[0] if p.opts[0].startswith("-") else str(p.name).upper() for p in surplus)
        raise UsageError(f"{names} cannot stand beside --config", hint="the run file has a key for it")


def _run_file(config: Path, resume: bool, accept: list[str], as_json: bool) -> int:
    """The models of a run file, one after another, also behind one whose engine is gone.

    The worst exit code wins; an interrupt ends all.
    """
    codes = []
    for model in model_orders(load(config), resume=resume, accept=accept):
        try:
            result = asyncio.run(run_with_progress(model.order, model.urls, model.options, model.label))
            code = print_result(result, as_json)
        except EngineGone as gone:
            code = fail(gone.message, gone.hint, gone.exit_code)
        if code == 130:
            return code
        codes.append(code)
    return worst_exit_code(codes)

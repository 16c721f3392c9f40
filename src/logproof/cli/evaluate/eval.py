"""`logproof eval`, `rescore` and `report`: tasks into a run store, and what the store says."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.printing import fail, out, print_json, remark
from logproof.cli.progress import Bars
from logproof.client.connect import Connection, Options
from logproof.client.outage import PATIENCE_S
from logproof.client.pool import check_urls, open_pool
from logproof.errors import EngineGone, UsageError, clip
from logproof.eval.plan.prepare import prepare
from logproof.eval.plan.run_file import ModelEntry, RunFile, load
from logproof.eval.report import report, run_page
from logproof.eval.report.report import Report
from logproof.eval.report.rescore import EXTRACTED, Rescoring, rescored
from logproof.eval.run.pace import MOST
from logproof.eval.run.run import Order, RunResult, check, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.store.reader import StoreReader
from logproof.store.run_store import RunStore

Tasks = Annotated[list[str] | None, typer.Argument(help="Tasks to run.", metavar="TASK...")]
Data = Annotated[str | None, typer.Option("--data", help="Directory or file of rows, or hub:REPO; else our own rows.")]
Limit = Annotated[str | None, typer.Option("--limit", help="Rows a task: a count, or a fraction below 1.")]
Shots = Annotated[int | None, typer.Option("--shots", help="Few-shot rows; else each task's own number.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the few-shot draw and of sampling.")]
Concurrency = Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Samples and requests at a time.")]
AutoConcurrency = Annotated[
    str, typer.Option("--concurrency", "-c", help="Samples at a time, and requests at each endpoint; or auto.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="URL", help="Base URL of an endpoint; repeat it for several of one model."),
]
DEFAULT_URL = "http://127.0.0.1:8000"
BESIDE_CONFIG = {"config", "resume", "accept", "as_json"}
"""Options that may be given beside a run file."""
Uncond = Annotated[bool, typer.Option("--uncond", help="Also score options behind a neutral context (acc_uncond).")]
TopK = Annotated[int, typer.Option("--top-k", help="Width where labels are read from a top-k list.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Most generated tokens; else the task's own.")]
Out = Annotated[Path | None, typer.Option("--out", help="Directory of the run; must hold none unless --resume.")]
Patience = Annotated[float, typer.Option("--patience", min=0, help="Seconds to wait for an engine that is gone.")]
RunDir = Annotated[Path, typer.Argument(help="Directory of the run.", metavar="RUN")]


def evaluate(
    context: typer.Context,
    task: Tasks = None,
    model: Models = None,
    dialect: opt.DialectName = "auto",
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
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
    tokenizer: opt.TokenizerPath = None,
    drop: opt.Drop = None,
    as_json: opt.AsJson = False,
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
        out=directory or default_out("eval"),
        source=data,
        policy=RunPolicy(width := _concurrency(concurrency), 0 if fail_fast else max_failures, patience),
        resume=resume,
        accept=accept or (),
        canary=canary,
        log=log,
        metrics=metrics,
    )
    options = opt.connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer, drop=drop,
        concurrency=MOST if width == "auto" else width,
    )  # fmt: skip
    return conclude(asyncio.run(run_order(order, model or [DEFAULT_URL], options)), as_json)


def _concurrency(text: str) -> int | Literal["auto"]:
    """Raises UsageError."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--concurrency takes a number of at least 1, or auto, not {clip(text, 40)!r}")
    return int(text)


def _refuse_beside_config(context: typer.Context) -> None:
    """Raise UsageError where an option is given that the run file has a key for: nobody would read it."""
    asked = {name for name in context.params if (by := context.get_parameter_source(name)) and by.name != "DEFAULT"}
    surplus = [p for p in context.command.params if p.name in asked - BESIDE_CONFIG]
    if surplus:
        names = ", ".join(p.opts[0] if p.opts[0].startswith("-") else str(p.name).upper() for p in surplus)
        raise UsageError(f"{names} cannot stand beside --config", hint="the run file has a key for it")


def rescore(
    run: RunDir,
    name: Annotated[str, typer.Option("--name", help="Name of the new scores.")] = "rescored",
    extract: Annotated[str | None, typer.Option("--extract", help="Regular expression of the answer.")] = None,
    as_json: opt.AsJson = False,
) -> int:
    """Score a run's stored replies again, without any network; the first scores stay beside the new ones."""
    rescoring = Rescoring(extract)
    scorer = rescoring.scorer(name)
    with RunStore.amend(run) as store:
        store.put_scorer(scorer)
        count = extracted = 0
        for record in rescored(store, rescoring, scorer):
            store.put_score(record)
            count += 1
            extracted += EXTRACTED in record.scores
        store.flush()
        made = report.build(store, scorer.digest)
    show(made, as_json)
    remark(
        f"{count} samples scored again as {name}" if count else f"nothing to rescore: no sample of {run} is answered"
    )
    if extract is not None and count and not extracted:
        remark(f"nothing to rescore with --extract: no task of {run} generates text")
    return made.exit_code


def report_command(
    run: RunDir,
    scorer: Annotated[str | None, typer.Option("--scorer", help="Name or digest of later scores.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page with token logprobs.")] = None,
    prompts: Annotated[int, typer.Option("--prompts", min=0, help="Samples a task on that page.")] = 2,
    as_json: opt.AsJson = False,
) -> int:
    """Report a stored run, also one that still goes on."""
    with RunStore.read(run) as store:
        made = report.build(store, find_scorer(store, scorer))
        if page is not None:
            run_page.write(made, store, page, prompts)
    show(made, as_json)
    return made.exit_code


def find_scorer(store: StoreReader, wanted: str | None) -> str | None:
    """The digest of a scorer, by digest or by name (the latest of that name). Raises UsageError."""
    if wanted is None:
        return None
    found = [s for s in store.scorers() if wanted in (s.name, s.digest)]
    if not found:
        names = ", ".join(s.name for s in store.scorers()) or "none"
        raise UsageError(f"no scores named {wanted!r} in {store.path}", hint=f"there are: {names}")
    return found[-1].digest


def default_out(kind: str) -> Path:
    """A directory that no earlier run has."""
    return Path("runs") / f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"


async def run_order(order: Order, urls: list[str], options: Options, label: str = "") -> RunResult:
    """Connect, run an order with progress, and say where it went. Raises KeyboardInterrupt where it was cut short."""
    check_urls(urls, options)
    loaded = check(order)
    try:
        async with open_pool(urls, options, remark) as pool:
            places = ", ".join(c.endpoint.display for c in pool.connections)
            remark(f"{pool.first.model} at {places} over {pool.first.client.dialect.id} -> {order.out}")
            await _show_beginning(pool.first)
            with Bars(label) as bars:
                return await execute(order, pool, bars, loaded)
    except asyncio.CancelledError:
        remark(f"interrupted; what was stored is kept, logproof eval ... --out {order.out} --resume goes on")
        raise KeyboardInterrupt from None
    except EngineGone as gone:
        gone.hint = f"{gone.hint} with: logproof eval ... --out {order.out} --resume"
        raise


async def plan_order(order: Order, urls: list[str], options: Options) -> None:
    """Connect and plan an order without running it. Raises what would stop it before its first request."""
    check_urls(urls, options)
    loaded = check(order)
    async with open_pool(urls, options, remark) as pool:
        await prepare(loaded, pool.first)


async def _show_beginning(connection: Connection) -> None:
    """Whether the tokenizer puts a token before a prompt decides perplexities; so it is shown."""
    if connection.tokenizer is not None:
        first = (await connection.tokenizer.encode("Question:"))[0]
        text = await connection.tokenizer.text(first)
        remark(f"a prompt 'Question:' begins with token {first} {clip(repr(text), 40)}")


def _run_file(config: Path, resume: bool, accept: list[str], as_json: bool) -> int:
    """The models of a run file, one after another, also behind one whose engine is gone.

    The worst exit code wins; an interrupt ends all.
    """
    run = load(config)
    runs = [(entry, _order(entry, run, resume, accept), _options(entry, run)) for entry in run.models]
    for entry, order, options in runs:
        check_urls(entry.urls, options)
        check(order)
    worst = 0
    for entry, order, options in runs:
        try:
            code = conclude(asyncio.run(run_order(order, entry.urls, options, entry.label)), as_json)
        except EngineGone as gone:
            code = fail(gone.message, gone.hint, gone.exit_code)
        if code == 130:
            return code
        worst = max(worst, code, key=(0, 2, 1, 4).index)
    return worst


def _order(entry: ModelEntry, run: RunFile, resume: bool, accept: list[str]) -> Order:
    """The run of one model. resume, accept: as the command line says, beside the file."""
    return Order(
        entries=run.entries(),
        out=Path(run.out) / entry.label,
        source=run.data,
        policy=RunPolicy(run.concurrency, 0 if run.fail_fast else run.max_failures, run.patience),
        resume=resume or run.resume,
        accept=[*run.accept, *accept],
        canary=run.canary,
        log=Path(run.log) if run.log is not None else None,
        metrics=run.metrics,
    )


def _options(entry: ModelEntry, run: RunFile) -> Options:
    return Options(
        dialect=entry.dialect,
        model=entry.name,
        key_env=entry.key_env,
        headers=entry.headers,
        timeouts=opt.limits(entry.timeout),
        tokenizer=Path(entry.tokenizer) if entry.tokenizer is not None else None,
        drop=tuple(entry.drop),
        concurrency=MOST if run.concurrency == "auto" else run.concurrency,
    )


def conclude(finished: RunResult, as_json: bool) -> int:
    """Print a finished run and return its exit code: 130 interrupted, 1 stopped early, else the report's."""
    show(finished.report, as_json)
    ended = finished.ended
    remark(f"{ended.ran} samples run, {ended.skipped} stored before, {ended.failed} failed; {finished.path}")
    remark(ended.counters.line())
    if ended.reason is not None:
        remark(f"ended early: {ended.reason}; logproof eval ... --out {finished.path} --resume goes on")
    if ended.interrupted:
        return 130
    return 1 if ended.reason is not None else finished.report.exit_code


def show(made: Report, as_json: bool) -> None:
    """Print a report as a table, or as JSON."""
    if as_json:
        print_json(made)
        return
    table = Table(title=escape(f"{made.model} over {made.dialect}"), title_justify="left", show_edge=False)
    for name, right in (("task", False), ("metric", False), ("value ± se", True), ("rows", True), ("failed", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("remarks")
    for row in report.table_rows(made):
        table.add_row(*(escape(cell) for cell in row))
    out.print(table)
    for t in made.tasks:
        for reason, count in t.failures.items():
            out.print(f"{t.task}: {count} failed: {reason}", markup=False)
    for note in made.notes:
        out.print(f"note: {note}", markup=False)
    for mark in made.suspect:
        out.print(f"suspect: {mark}", markup=False)

"""`logproof parity`: the same tasks over two dialects of one engine, and whether the numbers are the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.evaluate import eval as evaluation
from logproof.cli.printing import out, print_json, remark
from logproof.client.connect import Options
from logproof.dialects.registry import get_dialect
from logproof.eval.report import report
from logproof.eval.report.compare import Channel, Comparison, compare
from logproof.eval.report.parity import Parity, RunScores, judge, run_scores
from logproof.eval.run.run import Order
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.files import write_atomic
from logproof.store.reader import StoreReader
from logproof.store.run_store import RunStore

FILE = "parity.json"
CONTROL, CONTROL_B = "control", "control-b"


def parity(
    a: Annotated[str, typer.Argument(help="First dialect.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Second dialect.", metavar="B")],
    task: Annotated[list[str], typer.Argument(help="Tasks to run.", metavar="TASK...")],
    model: opt.ModelURL = "http://127.0.0.1:8000",
    model_b: Annotated[str | None, typer.Option("--model-b", metavar="URL", help="Endpoint of B, if another.")] = None,
    control: Annotated[bool, typer.Option("--control", help="Run A a second time, to see the engine's noise.")] = False,
    stream_b: Annotated[bool, typer.Option("--stream-b", help="Ask B for streams.")] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="Largest |difference| of input logprobs, in nat.")
    ] = 0.0,
    data: evaluation.Data = None,
    limit: evaluation.Limit = None,
    shots: evaluation.Shots = None,
    seed: evaluation.Seed = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Samples at a time.")] = 1,
    directory: evaluation.Out = None,
    uncond: evaluation.Uncond = False,
    top_k: evaluation.TopK = 20,
    max_tokens: evaluation.MaxTokens = None,
    model_name: opt.ModelName = None,
    model_name_b: Annotated[str | None, typer.Option("--model-name-b", help="Served name at --model-b.")] = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
    tokenizer: opt.TokenizerPath = None,
    as_json: opt.AsJson = False,
) -> int:
    """Run tasks over dialect A, then B, then A again as control, and compare every token.

    With --model-b, B is another engine of the same weights; --control then runs B a second time too.
    """
    for name in (a, b):
        if name != "auto":
            get_dialect(name)
    settings = Settings(shots=shots, seed=seed, limit=limit, uncond=uncond, top_k=top_k, max_tokens=max_tokens)
    root = directory or evaluation.default_out("parity")
    planned = []
    for run in _runs(a, b, (model, model_name), (model_b, model_name_b), control):
        asked = msgspec.structs.replace(settings, stream=stream_b and run.name in ("b", CONTROL_B))
        order = Order(
            entries=[(t, asked) for t in task], out=root / run.name, source=data, policy=RunPolicy(concurrency)
        )
        options = opt.connection(
            run.dialect, run.model_name, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer,
            concurrency=concurrency,
        )  # fmt: skip
        planned.append((run, order, options))
    return _carry_out(planned, root, tolerance, as_json)


class Run(msgspec.Struct, frozen=True):
    """One of the runs of a parity check. name: of its directory."""

    name: str
    dialect: str
    url: str
    model_name: str | None


def _runs(
    a: str, b: str, at_a: tuple[str, str | None], at_b: tuple[str | None, str | None], control: bool
) -> list[Run]:
    """A, B, and their controls, each endpoint given as (URL, served name)."""
    url_b, name_b = at_b
    second = at_a if url_b is None else (url_b, name_b)
    runs = [Run("a", a, *at_a), Run("b", b, *second)]
    if control:
        runs.append(Run(CONTROL, a, *at_a))
    if control and url_b is not None:
        runs.append(Run(CONTROL_B, b, *second))
    return runs


def _carry_out(planned: list[tuple[Run, Order, Options]], root: Path, tolerance: float, as_json: bool) -> int:
    """Check B before A takes its time, run all, compare, print and keep the comparison. The exit code."""
    second, order_b, options_b = planned[1]
    asyncio.run(evaluation.plan_order(order_b, [second.url], options_b))
    for run, order, options in planned:
        finished = asyncio.run(evaluation.run_order(order, [run.url], options, run.name))
        if finished.ended.interrupted:
            remark(f"interrupted; what was run is in {root}")
            return 130
    found = compare_runs(root, tolerance)
    write_atomic(root / FILE, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    show(found, as_json)
    return found.exit_code


def compare_runs(root: Path, tolerance: float) -> Parity:
    """Compare the runs in `a`, `b` and, where they are, their controls below a directory. Raises StoreError."""
    with RunStore.read(root / "a") as one, RunStore.read(root / "b") as two:
        a, b = run_scores(report.build(one)), run_scores(report.build(two))
        control, noise = _again(root / CONTROL, one)
        _, noise_b = _again(root / CONTROL_B, two)
        judged = judge(a, b, compare(one, two), tolerance, control, noise)
        return msgspec.structs.replace(judged, noise_b=noise_b)


def _again(path: Path, first: StoreReader) -> tuple[RunScores | None, Comparison | None]:
    """Scores of a second run, and how far it is from the first."""
    if not path.is_dir():
        return None, None
    with RunStore.read(path) as again:
        return run_scores(report.build(again)), compare(first, again)


def show(found: Parity, as_json: bool) -> None:
    """Print a comparison."""
    if as_json:
        print_json(found)
        return
    _print_scores(found)
    _print_channels(found)
    first = found.pair.first
    if first is not None:
        out.print(f"first difference: {first.task} {first.row}, {first.part}: {first.detail}", markup=False)
        out.print(f"  behind the prompt … {first.prompt[-200:]!r}", markup=False)
    for reason in found.reasons:
        out.print(f"- {reason}", markup=False)
    words = {
        "agree": f"they agree (tolerance {found.tolerance:g} nat)",
        "noise": "they differ, no more than the engine differs from itself",
        "differ": "they differ",
    }
    verdict = f"parity of {found.a.dialect} and {found.b.dialect}: {words[found.verdict]}"
    out.print("; not compared: ".join([verdict, *filter(None, [", ".join(skipped(found.pair))])]), markup=False)


def skipped(pair: Comparison) -> list[str]:
    """What both runs hold and nobody could compare, in words."""
    parts = []
    for name, channel in (("input", pair.input), ("label", pair.labels), ("sampled", pair.sampled)):
        for count, what in (
            (channel.unknown_meaning, "logprobs, whose meaning a wire does not say"),
            (channel.unknown_ids, "ids, which a wire does not give"),
            (channel.unknown_texts, "texts, which a wire does not give"),
            (channel.texts_alone, "replies beyond their text: a wire gives no tokens"),
        ):
            parts += [f"{count} {name} {what}"] if count else []
    return parts


def _print_scores(found: Parity) -> None:
    table = Table(show_edge=False, title="scores", title_justify="left")
    sides = [s for s in (found.a, found.b, found.control) if s is not None]
    out.print(f"A: {found.a.dialect}   B: {found.b.dialect}", markup=False)
    for name in ("task", "metric", "A", "B", "control")[: 2 + len(sides)]:
        table.add_column(name, no_wrap=True)
    for task, metrics in found.a.metrics.items():
        for metric in metrics:
            table.add_row(task, metric, *(_cell(s, task, metric) for s in sides))
        table.add_row(task, "failed", *(str(s.failed.get(task, 0)) for s in sides))
    out.print(table)


def _cell(s: RunScores, task: str, metric: str) -> str:
    value = s.metrics.get(task, {}).get(metric)
    return "none" if value is None else f"{value:.6g}"


def _print_channels(found: Parity) -> None:
    table = Table(
        show_edge=False,
        title="over all calls: tokens compared, and positions whose ids or texts differ",
        title_justify="left",
    )
    for name in ("pair", "channel", "tokens", "mean |diff|", "90 %", "max", "ids", "texts", "skipped"):
        table.add_column(name, no_wrap=True)
    pairs: list[tuple[str, Comparison | None]] = [
        ("A, B", found.pair),
        ("A, control", found.noise),
        ("B, control", found.noise_b),
    ]
    for name, pair in pairs:
        if pair is None:
            continue
        for label, channel in (("input", pair.input), ("labels", pair.labels), ("sampled", pair.sampled)):
            table.add_row(name, label, *_figures(channel))
    out.print(table)


def _figures(channel: Channel) -> list[str]:
    ids = str(channel.differing_ids) + (f" ({channel.unknown_ids} without)" if channel.unknown_ids else "")
    texts = str(channel.differing_texts) + (f" ({channel.unknown_texts} without)" if channel.unknown_texts else "")
    unlike = channel.unlike + channel.unknown_meaning + channel.texts_alone
    mean, most, greatest = channel.spread.mean, channel.spread.bound(0.9), channel.max_difference
    sizes = ["" if mean is None else f"{mean:.3g}", "" if most is None else f"<= {most:g}"]
    return [str(channel.tokens), *sizes, "" if greatest is None else f"{greatest:.3g}", ids, texts, str(unlike)]

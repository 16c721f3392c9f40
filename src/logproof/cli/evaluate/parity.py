"""`logproof parity`: the same tasks over two dialects of one engine, and whether the numbers are the same."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import typer
from rich.table import Table

from logproof.cli.evaluate.run_options import DEFAULT_URL, Data, Limit, MaxTokens, Out, Seed, Shots, TopK, Uncond
from logproof.cli.evaluate.run_with_progress import run_with_progress
from logproof.cli.options import AsJson, Header, KeyEnv, ModelName, ModelURL, Timeout, TokenizerPath, connection
from logproof.cli.printing import note, out, print_json
from logproof.eval.report.compare import Channel, Comparison
from logproof.eval.report.parity import Parity, RunScores, not_compared
from logproof.eval.run.parity_runs import ParitySide, parity_runs, run_parity
from logproof.eval.run.run import Order
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.store.catalog import new_run_directory


def parity(
    a: Annotated[str, typer.Argument(help="First dialect.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Second dialect.", metavar="B")],
    task: Annotated[list[str], typer.Argument(help="Tasks to run.", metavar="TASK...")],
    model: ModelURL = DEFAULT_URL,
    model_b: Annotated[str | None, typer.Option("--model-b", metavar="URL", help="Endpoint of B, if another.")] = None,
    control: Annotated[bool, typer.Option("--control", help="Run A a second time, to see the engine's noise.")] = False,
    stream_b: Annotated[bool, typer.Option("--stream-b", help="Ask B for streams.")] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="Largest |difference| of input logprobs, in nat.")
    ] = 0.0,
    data: Data = None,
    limit: Limit = None,
    shots: Shots = None,
    seed: Seed = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Samples at a time.")] = 1,
    directory: Out = None,
    uncond: Uncond = False,
    top_k: TopK = 20,
    max_tokens: MaxTokens = None,
    model_name: ModelName = None,
    model_name_b: Annotated[str | None, typer.Option("--model-name-b", help="Served name at --model-b.")] = None,
    key_env: KeyEnv = None,
    header: Header = None,
    timeout: Timeout = None,
    tokenizer: TokenizerPath = None,
    as_json: AsJson = False,
) -> int:
    """Run tasks over dialect A, then B, then A again as control, and compare every token.

    With --model-b, B is another engine of the same weights; --control then runs B a second time too.
    """
    settings = Settings(shots=shots, seed=seed, limit=limit, uncond=uncond, top_k=top_k, max_tokens=max_tokens)
    root = directory or new_run_directory("parity")
    options = partial(
        connection, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer, concurrency=concurrency
    )
    side_a = ParitySide(model, options(a, model_name))
    side_b = ParitySide(model_b or model, options(b, model_name if model_b is None else model_name_b), stream_b)
    runs = parity_runs(
        Order(entries=[(name, settings) for name in task], out=root, source=data, policy=RunPolicy(concurrency)),
        side_a,
        side_b,
        control=control,
        control_b=control and model_b is not None,
    )
    result = asyncio.run(run_parity(runs, root, tolerance, carry_out=run_with_progress, announce=note))
    if result is None:
        note(f"interrupted; what was run is in {root}")
        return 130
    print_parity(result, as_json)
    return result.exit_code


def print_parity(result: Parity, as_json: bool) -> None:
    """Print a comparison."""
    if as_json:
        print_json(result)
        return
    _print_scores(result)
    _print_channels(result)
    first = result.pair.first
    if first is not None:
        out.print(f"first difference: {first.task} {first.row}, {first.part}: {first.detail}", markup=False)
        out.print(f"  behind the prompt … {first.prompt[-200:]!r}", markup=False)
    for reason in result.reasons:
        out.print(f"- {reason}", markup=False)
    words = {
        "agree": f"they agree (tolerance {result.tolerance:g} nat)",
        "noise": "they differ, no more than the engine differs from itself",
        "differ": "they differ",
    }
    verdict = f"parity of {result.a.dialect} and {result.b.dialect}: {words[result.verdict]}"
    out.print("; not compared: ".join([verdict, *filter(None, [", ".join(not_compared(result.pair))])]), markup=False)


def _print_scores(result: Parity) -> None:
    table = Table(show_edge=False, title="scores", title_justify="left")
    sides = [s for s in (result.a, result.b, result.control) if s is not None]
    out.print(f"A: {result.a.dialect}   B: {result.b.dialect}", markup=False)
    for name in ("task", "metric", "A", "B", "control")[: 2 + len(sides)]:
        table.add_column(name, no_wrap=True)
    for task, metrics in result.a.metrics.items():
        for metric in metrics:
            table.add_row(task, metric, *(_cell(s, task, metric) for s in sides))
        table.add_row(task, "failed", *(str(s.failed.get(task, 0)) for s in sides))
    out.print(table)


def _cell(s: RunScores, task: str, metric: str) -> str:
    value = s.metrics.get(task, {}).get(metric)
    return "none" if value is None else f"{value:.6g}"


def _print_channels(result: Parity) -> None:
    table = Table(
        show_edge=False,
        title="over all calls: tokens compared, and positions whose ids or texts differ",
        title_justify="left",
    )
    for name in ("pair", "channel", "tokens", "mean |diff|", "90 %", "max", "ids", "texts", "skipped"):
        table.add_column(name, no_wrap=True)
    pairs: list[tuple[str, Comparison | None]] = [
        ("A, B", result.pair),
        ("A, control", result.noise),
        ("B, control", result.noise_b),
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

"""`logproof replay`: artifacts replayed on a trusted engine, and how far the logprobs lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from logproof.cli import options as opt
from logproof.cli.printing import out, print_json
from logproof.cli.verify import verify_options
from logproof.cli.with_connections import run_with_connections
from logproof.verify.artifact.artifact_files import read_all
from logproof.verify.replay.replay_all import FailedReplay, ReplayComparison, replay_all


def replay(
    artifact: verify_options.Artifacts,
    engine: verify_options.EngineURL = "http://127.0.0.1:8000",
    method: verify_options.MethodName = "auto",
    repeats: verify_options.Repeats = 1,
    concurrency: verify_options.Concurrency = 1,
    fill: verify_options.Fill = False,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
    as_json: opt.AsJson = False,
) -> int:
    """Replay artifacts on a trusted engine and show how far the logprobs lie apart. No verdict: see `verify`."""
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=concurrency)
    choice = verify_options.method(method)
    artifacts = read_all(artifact)
    verify_options.alone(fill, concurrency)
    work = partial(replay_all, artifacts=artifacts, method=choice, repeats=repeats, fill=fill, concurrency=concurrency)
    rows = run_with_connections(work, (engine, options))
    if as_json:
        print_json(rows)
    else:
        _print_rows(rows)
    return 2 if any(isinstance(row, FailedReplay) for row in rows) else 0


def _print_rows(rows: Sequence[ReplayComparison | FailedReplay]) -> None:
    for row in rows:
        out.print(f"{row.artifact}: {_row_words(row)}", markup=False)


def _row_words(row: ReplayComparison | FailedReplay) -> str:
    if isinstance(row, FailedReplay):
        return f"not replayed: {row.failure}"
    apart, floor = row.largest_difference, row.noise_floor
    words = [f"{row.method} ({row.reason})", f"{row.tokens} tokens"]
    words.append("ids differ" if apart is None else f"largest difference {apart:.2e} nat")
    return ", ".join(words if floor is None else [*words, f"repeats within {floor:.2e} nat"])

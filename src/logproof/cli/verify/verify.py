"""`capture`, `replay` and `verify`: records of completions, and whether the claimed model produced them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.printing import out, print_json, remark, visible
from logproof.cli.verify import verify_options
from logproof.client.connect import Connection, connect
from logproof.files import write_atomic
from logproof.parallel import in_order
from logproof.verify import verdict as verdicts
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.audit.verify import verify as judging
from logproof.verify.checks import recorded
from logproof.verify.judge import judge
from logproof.verify.record.capture import CapturedPrompt
from logproof.verify.record.capture import capture as capturing
from logproof.verify.replay.by_prefill import missing
from logproof.verify.replay.replay import replay as replaying
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.distance import max_abs, pair
from logproof.verify.stats.support import Sampler


def capture(
    file: verify_options.Prompts,
    output: Annotated[Path, typer.Option("--out", "-o", help="Artifact file to write, .jsonl or .parquet.")],
    model: opt.ModelURL = "http://127.0.0.1:8000",
    dialect: opt.DialectName = "auto",
    temperature: verify_options.Temperature = 1.0,
    top_p: verify_options.TopP = 1.0,
    top_k: verify_options.TopK = 0,
    min_p: verify_options.MinP = 0.0,
    max_tokens: verify_options.MaxTokens = 128,
    width: verify_options.Width = 20,
    nonce: verify_options.Nonce = None,
    fixed: Annotated[bool, typer.Option("--fixed", help="Record logprobs in steps of 1/1024 nat: smaller.")] = False,
    claim: verify_options.ClaimedModel = None,
    dtype: verify_options.Dtype = None,
    runner: verify_options.Runner = None,
    device: verify_options.Device = None,
    profile: verify_options.Profile = None,
    identity: verify_options.Identity = None,
    eos_id: verify_options.EosIds = None,
    default: verify_options.DefaultValues = None,
    sign_key: verify_options.SignKey = None,
    concurrency: verify_options.Concurrency = 4,
    replace: verify_options.Replace = False,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
) -> int:
    """Call an endpoint with every sampling setting pinned, and record each completion as an artifact.

    Exit 1 where the endpoint failed on some prompts; the others are recorded.
    """
    verify_options.unused(output, replace=replace)
    given = verify_options.prompts(file)
    gaps, key = verify_options.defaults(None, default)[1], verify_options.sign_key(sign_key)
    pins = verify_options.pins(
        Sampler(temperature, top_k, top_p, min_p), max_tokens, width, nonce, fixed=fixed, gaps=gaps
    )
    options = opt.connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, concurrency=concurrency, texts=False
    )
    about = verify_options.ClaimOptions(
        claim, dtype, runner, device, profile, tuple(eos_id) if eos_id else None, verify_options.identity(identity)
    )

    made: list[CapturedPrompt] = []

    async def work() -> None:
        async with connect(model, options) as connection:
            async for one in capturing(connection, given, pins, about.of(connection), concurrency=concurrency):
                made.append(one)

    try:
        asyncio.run(work())
    finally:  # what was answered is kept, also where the endpoint or the user ends it
        good = [verify_options.sealed(c.artifact, key) for c in made if c.artifact is not None]
        if made:
            artifact_files.write(output, good)
            for one in made:
                if one.error is not None:
                    remark(f"{one.prompt.id}: {one.error}")
            remark(f"{len(good)} of {len(given)} prompts recorded in {output}")
    return 0 if len(good) == len(given) else 1


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
    asked = verify_options.method(method)
    given = verify_options.artifacts(artifact)
    verify_options.alone(fill, concurrency)

    async def work() -> list[dict[str, object]]:
        async with connect(engine, options) as connection:
            return await in_order(
                [partial(_replayed, connection, a, asked, repeats=repeats, fill=fill) for a in given], concurrency
            )

    rows = asyncio.run(work())
    if as_json:
        print_json(rows)
    else:
        _print_rows(rows)
    return 0 if all("failure" not in r for r in rows) else 2


async def _replayed(
    connection: Connection, artifact: Artifact, asked: MethodChoice, *, repeats: int, fill: bool
) -> dict[str, object]:
    checked = recorded.check(artifact)
    row: dict[str, object] = {"artifact": artifact.artifact_id}
    if checked.columns is None or not checked.replayable:
        detail = next((f.detail for f in checked.findings if f.outcome != "pass"), "it cannot be replayed")
        return {**row, "failure": detail}
    answer = await replaying(connection, artifact, asked, repeats=repeats, fill=fill)
    if not isinstance(answer, ReplayResult):
        return {**row, "failure": f"{answer.reason}: {answer.detail}"}
    same = len(answer.columns) == len(checked.columns) and bool(
        (answer.columns.sampled_ids == checked.columns.sampled_ids).all()
    )
    lists = answer.columns if answer.scored is None else answer.scored
    apart = max_abs(pair(checked.columns, lists)) if same else None
    return {
        **row,
        "method": answer.method,
        "reason": answer.method_reason,
        "tokens": len(answer.columns),
        "ids_equal": same,
        "largest_difference": apart,
        "missing": sum(map(len, missing(checked.columns, lists).values())) if same else None,
        "noise_floor": answer.noise_floor,
        "seconds": round(answer.seconds, 3),
    }


def verify(
    artifact: verify_options.Artifacts,
    engine: verify_options.EngineURL = "http://127.0.0.1:8000",
    policy: verify_options.PolicyFile = None,
    method: verify_options.MethodName = "auto",
    repeats: verify_options.Repeats = 1,
    concurrency: verify_options.Concurrency = 1,
    fill: verify_options.Fill = False,
    explain: Annotated[bool, typer.Option("--explain", help="Replay rejected ones under other prompts too.")] = False,
    without: Annotated[bool, typer.Option("--offline", help="Only the tests that need no engine.")] = False,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Write verdicts as JSON lines.")] = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
    as_json: opt.AsJson = False,
) -> int:
    """Judge artifacts: valid (exit 0), invalid (1) or inconclusive (2), with reasons. Nothing passes by default."""
    rules = verify_options.policy(policy) if policy is not None else None
    given = verify_options.artifacts(artifact)
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=concurrency)
    asked = verify_options.method(method)
    verify_options.alone(fill, concurrency)

    async def work() -> list[verdicts.Verdict]:
        async with connect(engine, options) as connection:
            how = partial(judging, connection, repeats=repeats, fill=fill, explain=explain)
            jobs = [partial(how, a, rules, asked) for a in given]
            return [verdict for _, verdict in await in_order(jobs, concurrency)]

    now = datetime.now(UTC)
    found = [judge(a, None, rules, now) for a in given] if without else asyncio.run(work())
    if output is not None:
        write_atomic(output, b"".join(verdicts.encode(v) + b"\n" for v in found))
    print_json(found) if as_json else _print_verdicts(found)
    return verdicts.exit_code(v.status for v in found)


def _print_rows(rows: list[dict[str, object]]) -> None:
    for row in rows:
        out.print(f"{row['artifact']}: {_row_words(row)}", markup=False)


def _row_words(row: dict[str, object]) -> str:
    if "failure" in row:
        return f"not replayed: {row['failure']}"
    apart, floor = row["largest_difference"], row["noise_floor"]
    told = [f"{row['method']} ({row['reason']})", f"{row['tokens']} tokens"]
    told.append("ids differ" if apart is None else f"largest difference {apart:.2e} nat")
    return ", ".join(told if floor is None else [*told, f"repeats within {floor:.2e} nat"])


def _print_verdicts(found: list[verdicts.Verdict]) -> None:
    table = Table("artifact", "verdict", "level", "why", box=None)
    for row in verdicts.table(found):
        table.add_row(*(escape(visible(cell)) for cell in row))
    out.print(table)
    for v in found:
        out.print(f"\n{v.context.artifact_digest[:12]}  {v.status}\n  {v.headline}", markup=False)
        for f in v.findings:
            out.print(f"  {f.test:6} {f.outcome:8} {visible(f.detail)}", markup=False)

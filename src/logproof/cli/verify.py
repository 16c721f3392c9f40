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
from logproof.cli import ways
from logproof.cli.printing import out, print_json, remark, visible
from logproof.models.connect import Connection, connect
from logproof.records.files import write_atomic
from logproof.verify import audit as auditing
from logproof.verify import files, offline
from logproof.verify import verdict as verdicts
from logproof.verify.artifact import Artifact
from logproof.verify.capture import Captured
from logproof.verify.capture import capture as capturing
from logproof.verify.distance import max_abs, pair
from logproof.verify.judge import Replay, judge
from logproof.verify.parallel import in_order
from logproof.verify.replay import Asked, missing
from logproof.verify.replay import replay as replaying
from logproof.verify.support import Sampler


def capture(
    file: ways.Prompts,
    output: Annotated[Path, typer.Option("--out", "-o", help="Artifact file to write, .jsonl or .parquet.")],
    model: opt.ModelURL = "http://127.0.0.1:8000",
    dialect: opt.DialectName = "auto",
    temperature: ways.Temperature = 1.0,
    top_p: ways.TopP = 1.0,
    top_k: ways.TopK = 0,
    min_p: ways.MinP = 0.0,
    max_tokens: ways.MaxTokens = 128,
    width: ways.Width = 20,
    nonce: ways.Nonce = None,
    fixed: Annotated[bool, typer.Option("--fixed", help="Record logprobs in steps of 1/1024 nat: smaller.")] = False,
    claim: ways.ClaimedModel = None,
    dtype: ways.Dtype = None,
    runner: ways.Runner = None,
    device: ways.Device = None,
    profile: ways.Profile = None,
    identity: ways.Identity = None,
    eos_id: ways.EosIds = None,
    default: ways.DefaultValues = None,
    sign_key: ways.SignKey = None,
    concurrency: ways.Concurrency = 4,
    replace: ways.Replace = False,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
) -> int:
    """Call an endpoint with every sampling setting pinned, and record each completion as an artifact.

    Exit 1 where the endpoint failed on some prompts; the others are recorded.
    """
    ways.unused(output, replace=replace)
    given = ways.prompts(file)
    gaps, key = ways.defaults(None, default)[1], ways.sign_key(sign_key)
    pins = ways.pins(Sampler(temperature, top_k, top_p, min_p), max_tokens, width, nonce, fixed=fixed, gaps=gaps)
    options = opt.connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, concurrency=concurrency, texts=False
    )
    about = ways.ClaimOptions(
        claim, dtype, runner, device, profile, tuple(eos_id) if eos_id else None, ways.identity(identity)
    )

    made: list[Captured] = []

    async def work() -> None:
        async with connect(model, options) as connection:
            async for one in capturing(connection, given, pins, about.of(connection), concurrency=concurrency):
                made.append(one)

    try:
        asyncio.run(work())
    finally:  # what was answered is kept, also where the endpoint or the user ends it
        good = [ways.sealed(c.artifact, key) for c in made if c.artifact is not None]
        if made:
            files.write(output, good)
            for one in made:
                if one.error is not None:
                    remark(f"{one.prompt.id}: {one.error}")
            remark(f"{len(good)} of {len(given)} prompts recorded in {output}")
    return 0 if len(good) == len(given) else 1


def replay(
    artifact: ways.Artifacts,
    engine: ways.EngineURL = "http://127.0.0.1:8000",
    method: ways.MethodName = "auto",
    repeats: ways.Repeats = 1,
    concurrency: ways.Concurrency = 1,
    fill: ways.Fill = False,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
    as_json: opt.AsJson = False,
) -> int:
    """Replay artifacts on a trusted engine and show how far the logprobs lie apart. No verdict: see `verify`."""
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=concurrency)
    asked = ways.method(method)
    given = ways.artifacts(artifact)
    ways.alone(fill, concurrency)

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
    connection: Connection, artifact: Artifact, asked: Asked, *, repeats: int, fill: bool
) -> dict[str, object]:
    checked = offline.check(artifact)
    row: dict[str, object] = {"artifact": artifact.artifact_id}
    if checked.columns is None or not checked.replayable:
        detail = next((f.detail for f in checked.findings if f.outcome != "pass"), "it cannot be replayed")
        return {**row, "failure": detail}
    answer = await replaying(connection, artifact, asked, repeats=repeats, fill=fill)
    if not isinstance(answer, Replay):
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
    artifact: ways.Artifacts,
    engine: ways.EngineURL = "http://127.0.0.1:8000",
    policy: ways.PolicyFile = None,
    method: ways.MethodName = "auto",
    repeats: ways.Repeats = 1,
    concurrency: ways.Concurrency = 1,
    fill: ways.Fill = False,
    explain: Annotated[bool, typer.Option("--explain", help="Replay rejected ones under other prompts too.")] = False,
    without: Annotated[bool, typer.Option("--offline", help="Only the tests that need no engine.")] = False,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Write verdicts as JSON lines.")] = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
    as_json: opt.AsJson = False,
) -> int:
    """Judge artifacts: valid (exit 0), invalid (1) or inconclusive (2), with reasons. Nothing passes by default."""
    rules = ways.policy(policy) if policy is not None else None
    given = ways.artifacts(artifact)
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=concurrency)
    asked = ways.method(method)
    ways.alone(fill, concurrency)

    async def work() -> list[verdicts.Verdict]:
        async with connect(engine, options) as connection:
            how = partial(auditing.verify, connection, repeats=repeats, fill=fill, explain=explain)
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

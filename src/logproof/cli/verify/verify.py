"""`logproof verify`: whether the claimed model produced the recorded completions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.printing import out, print_json, visible
from logproof.cli.verify import verify_options
from logproof.cli.with_connections import run_with_connections
from logproof.files import write_atomic
from logproof.verify.artifact.artifact_files import read_records
from logproof.verify.audit.verify import verify_all, verify_offline
from logproof.verify.verdict import Verdict, encode, exit_code, table


def verify(
    artifact: verify_options.Artifacts,
    engine: verify_options.EngineURL = "http://127.0.0.1:8000",
    policy: verify_options.PolicyFile = None,
    requests: verify_options.RequestFiles = None,
    requester_key: verify_options.RequesterKey = None,
    method: verify_options.MethodName = "auto",
    repeats: verify_options.Repeats = 1,
    concurrency: verify_options.Concurrency = 1,
    fill: verify_options.Fill = False,
    explain: Annotated[bool, typer.Option("--explain", help="Replay rejected ones under other prompts too.")] = False,
    without: Annotated[bool, typer.Option("--offline", help="Only the tests that need no engine.")] = False,
    require_key: verify_options.RequireKey = None,
    served_as: verify_options.ServedAs = None,
    generation_config: verify_options.GenerationConfig = None,
    default: verify_options.DefaultValues = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Write verdicts as JSON lines.")] = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
    as_json: opt.AsJson = False,
) -> int:
    """Judge artifacts: valid (exit 0), invalid (1) or inconclusive (2), with reasons. Nothing passes by default.

    A line that is no artifact is invalid, and hides no other. Without --requests only the record says what was asked
    for, and no verdict is above the level distribution. What a request left to the server, and another name of the
    model, count as you state them here, not as the record says.
    """
    rules = verify_options.policy(policy) if policy is not None else None
    keys = verify_options.public_keys(require_key)
    known = verify_options.requests(requests, requester_key)
    server = verify_options.server_statement(served_as, generation_config, default)
    records = read_records(artifact)
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=concurrency)
    choice = verify_options.method(method)
    verify_options.alone(fill, concurrency)
    if without:
        verdicts = verify_offline(records, rules, known, keys=keys, server=server)
    else:
        work = partial(
            verify_all,
            records=records,
            policy=rules,
            method=choice,
            repeats=repeats,
            fill=fill,
            explain=explain,
            concurrency=concurrency,
            keys=keys,
            server=server,
            requests=known,
        )
        verdicts = run_with_connections(work, (engine, options))
    if output is not None:
        write_atomic(output, b"".join(encode(v) + b"\n" for v in verdicts))
    if as_json:
        print_json(verdicts)
    else:
        _print_verdicts(verdicts)
    return exit_code(v.status for v in verdicts)


def _print_verdicts(verdicts: list[Verdict]) -> None:
    rows = Table("artifact", "verdict", "level", "why", box=None)
    for row in table(verdicts):
        rows.add_row(*(escape(visible(cell)) for cell in row))
    out.print(rows)
    for v in verdicts:
        out.print(f"\n{v.context.artifact_digest[:12]}  {v.status}\n  {v.headline}", markup=False)
        for f in v.findings:
            out.print(f"  {f.test:6} {f.outcome:8} {visible(f.detail)}", markup=False)

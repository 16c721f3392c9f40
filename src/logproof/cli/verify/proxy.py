"""`logproof proxy`: a recording reverse proxy in front of an engine, for unmodified clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from logproof.cli import options as opt
from logproof.cli.printing import note
from logproof.cli.verify import verify_options
from logproof.client.connect import open_endpoint
from logproof.errors import UsageError
from logproof.proxy.app import STATUS
from logproof.proxy.record_calls import RecordingSettings, RecordingStart, record_calls
from logproof.proxy.recorder import OnFull, RecorderCounts
from logproof.verify.artifact.signing import read_key
from logproof.verify.record.generation_config import config_defaults


def proxy(
    upstream: Annotated[str, typer.Option("--upstream", "-u", metavar="URL", help="Base URL of the engine.")],
    output: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Directory for the artifact files.")],
    listen_at: Annotated[str, typer.Option("--listen", "-l", metavar="HOST:PORT")] = "127.0.0.1:8080",
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Entries recorded at each position.")] = 5,
    on_full: Annotated[
        str, typer.Option("--on-full", help="open: serve and count the loss; closed: answer 503.")
    ] = "open",
    wire_log: Annotated[bool, typer.Option("--wire-log", help="Also keep requests and replies, without keys.")] = False,
    requests: Annotated[
        bool, typer.Option("--requests", help="Also keep what was requested, for `verify --requests`.")
    ] = False,
    queue: Annotated[int, typer.Option("--queue", min=1, help="Most calls that wait to be written.")] = 1024,
    rotate_mb: Annotated[int, typer.Option("--rotate-mb", min=1, help="Size at which a file is closed.")] = 64,
    rotate_s: Annotated[float, typer.Option("--rotate-s", min=0.0, help="Age at which a file is closed.")] = 30.0,
    claim: verify_options.ClaimedModel = None,
    dtype: verify_options.Dtype = None,
    runner: verify_options.Runner = None,
    device: verify_options.Device = None,
    profile: verify_options.Profile = None,
    identity: verify_options.Identity = None,
    eos_id: verify_options.EosIds = None,
    generation_config: verify_options.GenerationConfig = None,
    default: verify_options.DefaultValues = None,
    sign_key: verify_options.SignKey = None,
    key_env: opt.KeyEnv = None,
) -> int:
    """Stand in front of an engine and record each chat or completion call as an artifact; clients need no change.

    Sampling that a request leaves out is recorded as the engine tells it, or as --generation-config and --default
    state it, else as unresolved. The key of --key-env is used for the probe at the start alone; clients' own keys pass
    through and are not kept. Ends on Ctrl-C or SIGTERM: exit 0, or 2 where calls were lost.
    """
    settings = RecordingSettings(
        output=output,
        listen=listen_at,
        width=top_k,
        on_full=_on_full(on_full),
        wire_log=wire_log,
        requests=requests,
        queue=queue,
        rotate_bytes=rotate_mb << 20,
        rotate_s=rotate_s,
        claim=verify_options.stated_claim(claim, dtype, runner, device, profile, identity, eos_id),
        single=verify_options.single_defaults(default),
        config=config_defaults(generation_config),
        sign_key=read_key(sign_key) if sign_key is not None else None,
    )
    options = opt.connection("auto", None, key_env=key_env, texts=False)
    return _print_counts(record_calls(open_endpoint(upstream, options, "bearer"), settings, _print_start))


def _on_full(text: str) -> OnFull:
    if text not in ("open", "closed"):
        raise UsageError(f"--on-full takes open or closed, got {text!r}")
    return cast(OnFull, text)


def _print_start(start: RecordingStart) -> None:
    for path in start.recovered:
        note(f"{path.name} was left open by an earlier process; its whole lines are kept")
    for route in start.unasked:
        note(f"{route}: the engine lists no token ids, so nothing is asked and artifacts hold no logprobs")
    where = f"proxy at {start.url} for {start.upstream}, artifacts in {start.output}"
    note(f"{where}; it {start.on_full}; status at {STATUS}")
    if start.defaults.values:
        values = sorted(start.defaults.values.items())
        words = ", ".join(f"{name} {default.value} ({default.source})" for name, default in values)
        note(f"sampling that a request leaves out: {words}")
    if start.unresolved:
        note(f"not known of requests that leave it out: {', '.join(start.unresolved)}; --generation-config states it")


def _print_counts(counts: RecorderCounts) -> int:
    """The farewell, and the exit code."""
    kept = f"{counts.recorded} calls recorded, {counts.lost} lost"
    note(f"{kept}, {counts.unreadable} unreadable, {counts.refused} refused")
    if counts.last_error:
        note(f"last error: {counts.last_error}")
    return 2 if counts.lost else 0

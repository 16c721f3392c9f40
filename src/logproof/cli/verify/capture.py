"""`logproof capture`: own calls with every sampling setting pinned, recorded as artifacts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli import options as opt
from logproof.cli.printing import note
from logproof.cli.verify import verify_options
from logproof.cli.with_connections import run_with_connections
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.request_files import write_requests
from logproof.verify.artifact.signing import read_key, signed
from logproof.verify.record.capture import CapturedPrompt, capture_all
from logproof.verify.record.prompts import read_prompts
from logproof.verify.stats.sampler import Sampler


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
    fixed: verify_options.Fixed = False,
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
    requests: Annotated[
        Path | None, typer.Option("--requests", help="Also write what was requested, for `verify --requests`.")
    ] = None,
    replace: verify_options.Replace = False,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
) -> int:
    """Call an endpoint with every sampling setting pinned, and record each completion as an artifact.

    Exit 1 where the endpoint failed on some prompts; the others are recorded.
    """
    for path in (output, *([] if requests is None else [requests])):
        verify_options.unused(path, replace=replace)
    prompts = read_prompts(file)
    defaults = verify_options.single_defaults(default)
    key = read_key(sign_key) if sign_key is not None else None
    sampler = Sampler(temperature, top_k, top_p, min_p)
    pins = verify_options.pins(sampler, max_tokens, width, nonce, fixed=fixed, defaults=defaults)
    options = opt.connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, concurrency=concurrency, texts=False
    )
    stated = verify_options.stated_claim(claim, dtype, runner, device, profile, identity, eos_id)
    answers: list[CapturedPrompt] = []
    work = partial(capture_all, prompts=prompts, pins=pins, stated=stated, keep=answers.append, concurrency=concurrency)
    try:
        run_with_connections(work, (model, options))
    finally:  # what was answered is kept, also where the endpoint or the user ends it
        artifacts = [signed(a.artifact, key) for a in answers if a.artifact is not None]
        if answers:
            artifact_files.write(output, artifacts)
            if requests is not None:
                write_requests(requests, [a.known for a in answers if a.known is not None], key)
            for answer in answers:
                if answer.error is not None:
                    note(f"{answer.prompt.id}: {answer.error}")
            note(f"{len(artifacts)} of {len(prompts)} prompts recorded in {output}")
    return 0 if len(artifacts) == len(prompts) else 1

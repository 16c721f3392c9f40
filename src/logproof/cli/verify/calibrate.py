"""`logproof calibrate`: honest noise on the trusted engine, as a policy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli import options as opt
from logproof.cli.printing import note, out, visible
from logproof.cli.verify import verify_options
from logproof.cli.with_connections import run_with_connections
from logproof.errors import UsageError
from logproof.files import write_atomic
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.artifact_files import read_all
from logproof.verify.calibrate.collect import distinct
from logproof.verify.calibrate.fit import Aim
from logproof.verify.calibrate.make_policy import make_policy
from logproof.verify.check_table import DISTRIBUTION
from logproof.verify.policy import Policy, dump
from logproof.verify.record.prompts import read_prompts
from logproof.verify.requirements import requirement_lines
from logproof.verify.stats import conformal
from logproof.verify.stats.sampler import Sampler


def calibrate(
    file: verify_options.Prompts,
    output: Annotated[Path, typer.Option("--out", "-o", help="Policy file to write.")],
    engine: verify_options.EngineURL = "http://127.0.0.1:8000",
    executor: Annotated[
        str | None, typer.Option("--executor", metavar="URL", help="Honest executor, if another.")
    ] = None,
    honest: Annotated[
        list[Path] | None, typer.Option("--honest", help="Honest artifacts to add, as of other hardware; repeatable.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the policy.")] = "policy",
    level: Annotated[float, typer.Option("--level", help="Target false-positive rate of a verdict.")] = 0.01,
    days: Annotated[int, typer.Option("--days", min=1, help="Days until the policy expires.")] = 30,
    pin_model: Annotated[
        bool, typer.Option("--pin-model", help="Records of another model or digest are invalid, not inconclusive.")
    ] = False,
    concurrencies: Annotated[str, typer.Option("--concurrencies", help="Concurrencies to capture at.")] = "1,4",
    method: verify_options.MethodName = "auto",
    temperature: verify_options.Temperature = 1.0,
    top_p: verify_options.TopP = 1.0,
    top_k: verify_options.TopK = 0,
    min_p: verify_options.MinP = 0.0,
    greedy: Annotated[bool, typer.Option("--greedy/--no-greedy", help="Measure greedy completions too.")] = True,
    max_tokens: verify_options.MaxTokens = 128,
    width: verify_options.Width = 20,
    fixed: verify_options.Fixed = False,
    nonce: verify_options.Nonce = None,
    claim: verify_options.ClaimedModel = None,
    dtype: verify_options.Dtype = None,
    runner: verify_options.Runner = None,
    device: verify_options.Device = None,
    processor: Annotated[
        str | None, typer.Option("--processor", metavar="NAME", help="The executor's processor, as verdicts name it.")
    ] = None,
    profile: verify_options.Profile = None,
    identity: verify_options.Identity = None,
    eos_id: verify_options.EosIds = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
) -> None:
    """Measure how far honest runs differ on the trusted engine, and write the policy that `verify` judges by."""
    prompts, limits = read_prompts(file), _limits(concurrencies)
    more = _distinct(read_all(honest)) if honest else []
    pins = [verify_options.pins(Sampler(temperature, top_k, top_p, min_p), max_tokens, width, nonce, fixed=fixed)]
    if greedy and temperature > 0:
        pins.append(verify_options.pins(Sampler(0.0), max_tokens, width, nonce, fixed=fixed))
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=max(limits))
    work = partial(
        make_policy,
        prompts=prompts,
        pins=pins,
        stated=verify_options.stated_claim(claim, dtype, runner, device, profile, identity, eos_id),
        aim=Aim(name=name, level=level, days=days, pin_model=pin_model),
        honest=more,
        processor=processor,
        method=verify_options.method(method),
        concurrencies=limits,
        progress=_print_progress,
    )
    policy = run_with_connections(work, (engine, options), (executor or engine, options))
    write_atomic(output, dump(policy) + b"\n")
    _print_policy(policy, output)


def _distinct(artifacts: list[Artifact]) -> list[Artifact]:
    kept = distinct(artifacts)
    if len(kept) < len(artifacts):
        note(f"{len(artifacts) - len(kept)} of {len(artifacts)} honest records are repeats of others, left out")
    return kept


def _limits(text: str) -> list[int]:
    parts = text.split(",")
    if not all(p.strip().isdecimal() and 0 < int(p) <= 1024 for p in parts):
        raise UsageError(f"--concurrencies takes numbers from 1 to 1024, such as 1,4; got {text!r}")
    return [int(p) for p in parts]


def _print_progress(done: int, total: int) -> None:
    if done == total or done % 16 == 0:
        note(f"{done} of {total} honest pairs")


def _print_policy(policy: Policy, path: Path) -> None:
    kind = f"{policy.model_id}, {policy.method}, {policy.mode}, width {policy.k}"
    out.print(f"{path}: {policy.name}, {kind}", markup=False)
    if policy.exact is not None:
        out.print(
            f"  an exact pair: equality within {policy.exact:.1e} nat; other machines were not seen", markup=False
        )
    out.print(visible(f"  machines: {policy.machine_words}"), markup=False)
    for line in requirement_lines(policy.requires):
        out.print(visible(f"  requires {line}"), markup=False)
    for bucket, holdout in sorted(policy.holdout.items()):
        low, high = holdout.interval()
        least = conformal.BUCKETS[int(bucket)]
        n = len(policy.scores.get(bucket, {}).get("tz", ()))
        out.print(
            f"  from {least} tokens: {n} scores; {holdout.alarms} alarms in {holdout.sequences} held-out sequences"
            f" (rate {low:.3f} to {high:.3f}, target {policy.level:g})",
            markup=False,
        )
    needed = conformal.needed(policy.level_of(DISTRIBUTION))
    if policy.exact is None and all(len(t.get("tz", ())) < needed for t in policy.scores.values()):
        note(f"no length has the {needed} scores that a false-positive rate of {policy.level:g} needs: add prompts")

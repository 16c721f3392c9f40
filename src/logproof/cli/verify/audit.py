"""`calibrate`, `audit` and `audits`: honest noise as a policy, samples of providers judged by it, and all together."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.printing import out, print_json, remark, visible
from logproof.cli.verify import verify_options
from logproof.client.connect import Connection, connect
from logproof.errors import UsageError
from logproof.files import read_bounded, write_atomic
from logproof.verify import policy as policies
from logproof.verify import verdict
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.audit import audit as auditing
from logproof.verify.audit import audit_page
from logproof.verify.audit import evidence as session
from logproof.verify.audit.evidence import JudgedArtifact
from logproof.verify.calibrate import collect as calibrating
from logproof.verify.calibrate.fit import Aim, fit
from logproof.verify.policy import Engine, Policy
from logproof.verify.stats import conformal
from logproof.verify.stats.support import Sampler


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
    nonce: verify_options.Nonce = None,
    claim: verify_options.ClaimedModel = None,
    dtype: verify_options.Dtype = None,
    runner: verify_options.Runner = None,
    device: verify_options.Device = None,
    profile: verify_options.Profile = None,
    identity: verify_options.Identity = None,
    eos_id: verify_options.EosIds = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
) -> None:
    """Measure how far honest runs differ on the trusted engine, and write the policy that `verify` judges by."""
    given, limits = verify_options.prompts(file), _limits(concurrencies)
    more = _distinct(verify_options.artifacts(honest)) if honest else []
    pins = [verify_options.pins(Sampler(temperature, top_k, top_p, min_p), max_tokens, width, nonce)]
    if greedy and temperature > 0:
        pins.append(verify_options.pins(Sampler(0.0), max_tokens, width, nonce))
    options = opt.connection("auto", model_name, key_env=key_env, timeout=timeout, texts=False, concurrency=max(limits))
    about = verify_options.ClaimOptions(
        claim, dtype, runner, device, profile, tuple(eos_id) if eos_id else None, verify_options.identity(identity)
    )
    asked = verify_options.method(method)

    async def work() -> Policy:
        async with connect(engine, options) as trusted, connect(executor or engine, options) as maker:
            sides = calibrating.CalibrationSides(maker, trusted)
            found = await calibrating.collect(
                sides, given, pins, about.of(maker), method=asked, concurrencies=limits, told=_counted
            )
            if more:
                added = await calibrating.recorded(trusted, more, method=asked, concurrency=max(limits))
                found = calibrating.HonestPairs((*found.pairs, *added.pairs), (*found.failures, *added.failures))
            floor = await calibrating.noise_floor(trusted, found.pairs, asked)
            aim = Aim(
                name=name,
                level=level,
                days=days,
                floor=floor,
                notes=found.failures,
                executor=_side(maker, dtype),
                verifier=_side(trusted),
                pin_model=pin_model,
            )
            return fit(found.pairs, aim, datetime.now(UTC))

    made = asyncio.run(work())
    write_atomic(output, policies.dump(made) + b"\n")
    _print_policy(made, output)


def audit(
    provider: Annotated[str, typer.Argument(help="Base URL of the provider.", metavar="PROVIDER")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="Policy that `calibrate` wrote.")],
    file: Annotated[Path, typer.Option("--prompts", help="Prompt file; its length is the budget.")],
    trusted: Annotated[str, typer.Option("--trusted", metavar="URL", help="Base URL of the trusted engine.")],
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Report to write, .html.")] = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="Artifact file to write.")] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Audit to write, .json, for --previous and `audits`.")
    ] = None,
    previous: Annotated[Path | None, typer.Option("--previous", help="An earlier audit to compare with.")] = None,
    replace: verify_options.Replace = False,
    everything: Annotated[bool, typer.Option("--all", help="Spend the whole budget, settled or not.")] = False,
    method: verify_options.MethodName = "auto",
    temperature: verify_options.Temperature = 1.0,
    top_p: verify_options.TopP = 1.0,
    top_k: verify_options.TopK = 0,
    min_p: verify_options.MinP = 0.0,
    max_tokens: verify_options.MaxTokens = 128,
    nonce: verify_options.Nonce = None,
    claim: verify_options.ClaimedModel = None,
    dtype: verify_options.Dtype = None,
    runner: verify_options.Runner = None,
    device: verify_options.Device = None,
    profile: verify_options.Profile = None,
    identity: verify_options.Identity = None,
    default: verify_options.DefaultValues = None,
    dialect: opt.DialectName = "auto",
    concurrency: verify_options.Concurrency = 4,
    model_name: opt.ModelName = None,
    trusted_name: Annotated[
        str | None, typer.Option("--trusted-name", help="Served name on the trusted engine.")
    ] = None,
    key_env: opt.KeyEnv = None,
    timeout: opt.Timeout = None,
    as_json: opt.AsJson = False,
) -> int:
    """Capture a sample from a provider, verify it on a trusted engine, and report. Exit codes as `verify`."""
    if keep is not None:
        verify_options.unused(keep, replace=replace)
    given, rules = verify_options.prompts(file), verify_options.policy(policy)
    before = _audit(previous) if previous is not None else None
    gaps = verify_options.defaults(None, default)[1]
    pins = verify_options.pins(Sampler(temperature, top_k, top_p, min_p), max_tokens, rules.k, nonce, gaps=gaps)
    asked = opt.connection(dialect, model_name, key_env=key_env, timeout=timeout, concurrency=concurrency, texts=False)
    here = opt.connection("auto", trusted_name, timeout=timeout, concurrency=concurrency, texts=False)
    names = verify_options.identity(identity)
    about = verify_options.ClaimOptions(claim or rules.model_id, dtype, runner, device, profile, None, names)
    way = verify_options.method(method)

    async def work() -> tuple[session.Audit, list[JudgedArtifact], dict[int, str]]:
        async with connect(provider, asked) as suspect, connect(trusted, here) as engine:
            sides = auditing.AuditSides(suspect, engine)
            made, done = await auditing.audit(
                sides, given, pins, about.of(suspect), rules, method=way, concurrency=concurrency,
                stop_early=not everything, told=_step,
            )  # fmt: skip
            return made, done, await _texts(engine, done) if output is not None else {}

    made, done, texts = asyncio.run(work())
    if output is not None:
        write_atomic(output, audit_page.page(made, done, rules, texts, before).encode())
    if keep is not None:
        artifact_files.write(keep, [v.artifact for v in done])
    if record is not None:
        write_atomic(record, msgspec.json.encode(made) + b"\n")
    differs = session.changes(before, made) if before is not None else []
    stale = bool(before is not None and session.outdated(before, made))
    if as_json:
        print_json({"audit": made, "changes": differs, "previous_is_stale": stale})
    else:
        _print_audit(made, differs, stale=stale)
    return made.session.exit_code


def audits(
    record: Annotated[list[Path], typer.Argument(help="Files that `audit --record` wrote.", metavar="RECORD...")],
    level: Annotated[
        float, typer.Option("--level", help="Share of the rejected that may be rejected falsely, in the mean.")
    ] = 0.05,
    as_json: opt.AsJson = False,
) -> int:
    """Say which of several audited providers are rejected, at a stated rate of false discoveries.

    Each provider needs the more evidence, the more of them are judged. Exit 1 where one is rejected, 0 where each
    audit is valid, else 2.
    """
    given = [_audit(path) for path in record]
    names = [(a.provider, a.model) for a in given]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UsageError(f"two audits of {twice[1]} at {twice[0]}", hint="give one audit of each provider")
    if not 0.0 < level < 1.0:
        raise UsageError(f"--level is a share between 0 and 1, got {level:g}")
    found = session.discoveries(given, level)
    if as_json:
        print_json({"level": level, "providers": found})
    else:
        _print_rulings(found, level)
    return verdict.exit_code(r.status for r in found)


def _audit(path: Path) -> session.Audit:
    try:
        return msgspec.json.decode(read_bounded(path), type=session.Audit)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no recorded audit: {error}") from None


def _distinct(given: list[Artifact]) -> list[Artifact]:
    kept = calibrating.distinct(given)
    if len(kept) < len(given):
        remark(f"{len(given) - len(kept)} of {len(given)} honest records are repeats of others, left out")
    return kept


def _limits(text: str) -> list[int]:
    parts = text.split(",")
    if not all(p.strip().isdecimal() and 0 < int(p) <= 1024 for p in parts):
        raise UsageError(f"--concurrencies takes numbers from 1 to 1024, such as 1,4; got {text!r}")
    return [int(p) for p in parts]


def _side(connection: Connection, dtype: str | None = None) -> Engine:
    return Engine(name=connection.facts.engine, version=connection.facts.version, dtype=dtype)


async def _texts(engine: Connection, done: list[JudgedArtifact]) -> dict[int, str]:
    """Texts of the sampled ids, as far as the trusted engine detokenises."""
    if engine.tokenizer is None:
        return {}
    ids = {t for v in done for t in (v.artifact.tokens.completion_ids or ())[: audit_page.MAX_TOKENS]}
    return {t: await engine.tokenizer.text(t) for t in sorted(ids)}


def _counted(done: int, total: int) -> None:
    if done == total or done % 16 == 0:
        remark(f"{done} of {total} honest pairs")


def _step(verified: JudgedArtifact, state: session.AuditSession) -> None:
    remark(f"{verified.prompt}: {verified.verdict.status}, log e {_evidence(state.log_e)}")


def _evidence(log_e: float) -> str:
    return f"{log_e:.2f}" if abs(log_e) < 1e6 else f"{log_e:.3g}"


def _print_policy(made: Policy, path: Path) -> None:
    out.print(f"{path}: {made.name}, {made.model_id}, {made.method}, {made.mode}, width {made.k}", markup=False)
    if made.exact is not None:
        out.print(f"  an exact pair: equality within {made.exact:.1e} nat", markup=False)
    for bucket, held in sorted(made.holdout.items()):
        low, high = held.interval()
        least = conformal.BUCKETS[int(bucket)]
        n = len(made.scores.get(bucket, {}).get("tz", ()))
        out.print(
            f"  from {least} tokens: {n} scores; {held.alarms} alarms in {held.sequences} held-out sequences"
            f" (rate {low:.3f} to {high:.3f}, target {made.level:g})",
            markup=False,
        )
    needed = conformal.needed(made.level_of("S1"))
    if made.exact is None and all(len(t.get("tz", ())) < needed for t in made.scores.values()):
        remark(f"no length has the {needed} scores that a false-positive rate of {made.level:g} needs: add prompts")


def _print_audit(made: session.Audit, differs: list[str], *, stale: bool) -> None:
    out.print(visible(f"{made.provider}: {made.session.status}\n{made.headline}"), markup=False)
    for line in differs:
        out.print(visible(f"  changed: {line}"), markup=False)
    if stale:
        out.print("  the earlier audit is stale: it rested on what has changed", markup=False)


def _print_rulings(found: list[session.Ruling], level: float) -> None:
    table = Table("provider", "model", "verdict", "its own audit", "requests", "log e", "found", box=None)
    for r in found:
        evidence = "contradiction" if r.contradiction else _evidence(r.log_e)
        row = (r.provider, r.model, r.status, r.alone, str(r.requests), evidence, r.headline)
        table.add_row(*(escape(visible(cell)) for cell in row))
    out.print(table)
    gone = sum(r.status == "invalid" for r in found)
    share = f"{100 * level:.6g}%"
    out.print(f"{gone} of {len(found)} rejected; of those, at most {share} falsely in the mean", markup=False)
    if any(r.alone == "invalid" and r.status != "invalid" for r in found):
        remark("an audit that stopped at its own level may hold too little for so many: audit again with --all")

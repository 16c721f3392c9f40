"""`logproof audit`: a sample from a provider, verified on a trusted engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.printing import note, out, print_json, visible
from logproof.cli.verify import verify_options
from logproof.cli.with_connections import run_with_connections
from logproof.errors import UsageError
from logproof.files import write_atomic
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import RecordedSampling
from logproof.verify.audit.audit import audit_provider
from logproof.verify.audit.audit_files import read_audit
from logproof.verify.audit.audit_page import page
from logproof.verify.audit.evidence import Audit, AuditSession, JudgedArtifact, changes, outdated, reason_groups
from logproof.verify.policy import Policy
from logproof.verify.record.prompts import read_prompts
from logproof.verify.stats.sampler import Sampler


def audit(
    provider: Annotated[str, typer.Argument(help="Base URL of the provider.", metavar="PROVIDER")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="Policy that `calibrate` wrote.")],
    file: Annotated[Path, typer.Option("--prompts", help="Prompt file; its length is the budget.")],
    trusted: Annotated[str, typer.Option("--trusted", metavar="URL", help="Base URL of the trusted engine.")],
    second: Annotated[
        str | None, typer.Option("--second", metavar="URL", help="A second trusted engine, which must reject too.")
    ] = None,
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
    prompts, rules = read_prompts(file), verify_options.policy(policy)
    before = read_audit(previous) if previous is not None else None
    defaults = verify_options.single_defaults(default)
    sampler = Sampler(temperature, top_k, top_p, min_p)
    _refuse_unseen(rules, sampler)
    there = opt.connection(dialect, model_name, key_env=key_env, timeout=timeout, concurrency=concurrency, texts=False)
    here = opt.connection("auto", trusted_name, timeout=timeout, concurrency=concurrency, texts=False)
    work = partial(
        audit_provider,
        prompts=prompts,
        pins=verify_options.pins(sampler, max_tokens, rules.k, nonce, defaults=defaults),
        stated=verify_options.stated_claim(claim or rules.model_id, dtype, runner, device, profile, identity),
        policy=rules,
        method=verify_options.method(method),
        concurrency=concurrency,
        stop_early=not everything,
        texts=output is not None,
        progress=_print_step,
    )
    others = [] if second is None else [(second, here)]
    result = run_with_connections(work, (provider, there), (trusted, here), *others)
    if output is not None:
        write_atomic(output, page(result.audit, result.judged, rules, result.texts, before).encode())
    if keep is not None:
        artifact_files.write(keep, [one.artifact for one in result.judged])
    if record is not None:
        write_atomic(record, msgspec.json.encode(result.audit) + b"\n")
    differs = changes(before, result.audit) if before is not None else []
    stale = bool(before is not None and outdated(before, result.audit))
    if as_json:
        print_json(
            {
                "audit": result.audit,
                "reasons": reason_groups(result.audit.session),
                "changes": differs,
                "previous_is_stale": stale,
            }
        )
    else:
        _print_audit(result.audit, differs, stale=stale)
    return result.audit.session.exit_code


def _refuse_unseen(rules: Policy, sampler: Sampler) -> None:
    """Raise UsageError before the budget is spent, where the policy saw no honest records with this sampling."""
    if rules.requires.sampling is None:
        return
    outside = rules.requires.sampling.outside(
        RecordedSampling(temperature=sampler.temperature, top_p=sampler.top_p, top_k=sampler.top_k, min_p=sampler.min_p)
    )
    if outside:
        detail = f"the policy says nothing about this sampling: {'; '.join(outside)}"
        raise UsageError(detail, hint="audit with sampling that it saw, or calibrate with this one")


def _print_step(judged: JudgedArtifact, session: AuditSession) -> None:
    note(f"{judged.prompt}: {judged.verdict.status}, log e {verify_options.evidence_words(session.log_e)}")


def _print_audit(finished: Audit, differs: list[str], *, stale: bool) -> None:
    out.print(visible(f"{finished.provider}: {finished.session.status}\n{finished.headline}"), markup=False)
    _print_reasons(finished.session)
    for line in differs:
        out.print(visible(f"  changed: {line}"), markup=False)
    if stale:
        out.print("  the earlier audit is stale: it rested on what has changed", markup=False)


def _print_reasons(session: AuditSession) -> None:
    """Each reason of a verdict that is not valid, once."""
    groups = reason_groups(session)
    if not groups:
        return
    rows = Table("reason", "requests", "first", "there", box=None)
    for g in groups:
        rows.add_row(*(escape(visible(cell)) for cell in (g.reason, str(g.requests), g.first, g.detail)))
    out.print(rows)

"""`logproof report`: what a stored run says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.evaluate.report_table import print_report
from logproof.cli.evaluate.run_options import RunDir
from logproof.cli.options import AsJson
from logproof.eval.report.run_report import report_run


def report(
    run: RunDir,
    scorer: Annotated[str | None, typer.Option("--scorer", help="Name or digest of later scores.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page with token logprobs.")] = None,
    prompts: Annotated[int, typer.Option("--prompts", min=0, help="Samples a task on that page.")] = 2,
    as_json: AsJson = False,
) -> int:
    """Report a stored run, also one that still goes on."""
    result = report_run(run, scorer=scorer, page=page, prompts=prompts)
    print_report(result, as_json)
    return result.exit_code

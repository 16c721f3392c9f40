"""`logproof rescore`: new scores from the stored replies of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from logproof.cli.evaluate.report_table import print_report
from logproof.cli.evaluate.run_options import RunDir
from logproof.cli.options import AsJson
from logproof.cli.printing import note
from logproof.eval.report.rescore import Rescoring, rescore_run


def rescore(
    run: RunDir,
    name: Annotated[str, typer.Option("--name", help="Name of the new scores.")] = "rescored",
    extract: Annotated[str | None, typer.Option("--extract", help="Regular expression of the answer.")] = None,
    as_json: AsJson = False,
) -> int:
    """Score a run's stored replies again, without any network; the first scores stay beside the new ones."""
    result = rescore_run(run, Rescoring(extract), name)
    print_report(result.report, as_json)
    if result.samples:
        note(f"{result.samples} samples scored again as {name}")
    else:
        note(f"nothing to rescore: no sample of {run} is answered")
    if extract is not None and result.samples and not result.extracted:
        note(f"nothing to rescore with --extract: no task of {run} generates text")
    return result.report.exit_code

"""The report of a stored run, with its page where one is wanted."""

from __future__ import annotations

from pathlib import Path

from logproof.eval.report import run_page
from logproof.eval.report.report import Report, build
from logproof.store.run_store import RunStore


def report_run(run: Path, *, scorer: str | None = None, page: Path | None = None, prompts: int = 2) -> Report:
    """Report a stored run, also one under way.

    scorer: name or digest of later scores, None for the first ones. page: file to write an HTML page to; prompts:
    samples of each task on it. Raises UsageError for an unknown scorer, StoreError.
    """
    with RunStore.read(run) as store:
        report = build(store, store.scorer_digest(scorer) if scorer is not None else None)
        if page is not None:
            run_page.write(report, store, page, prompts)
    return report

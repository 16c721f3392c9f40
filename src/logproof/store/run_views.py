"""What a reader is shown of one run: its state, provenance and failures, or one sample with its calls."""

from __future__ import annotations

from pathlib import Path

import msgspec

from logproof.errors import UsageError
from logproof.store.catalog import RunInfo, describe
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, RunProvenance, SampleRecord, WriteSession


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run. failures: key of a failed sample -> why."""

    run: RunInfo
    provenance: RunProvenance
    sessions: list[WriteSession]
    failures: dict[str, str]


class SampleView(msgspec.Struct, frozen=True, kw_only=True):
    """One sample with its calls."""

    sample: SampleRecord
    calls: list[CallRecord]


def view_run(path: Path) -> RunView:
    """Read one run, also one under way. Raises StoreError."""
    with StoreReader(path) as reader:
        return RunView(
            run=describe(path), provenance=reader.provenance, sessions=reader.sessions(), failures=reader.failed()
        )


def view_sample(path: Path, prefix: str) -> SampleView:
    """Read the one sample whose key begins so. Raises UsageError where there is none or several, StoreError."""
    with StoreReader(path) as reader:
        samples = [sample for sample in reader.samples() if sample.key.startswith(prefix)]
        if len(samples) != 1:
            raise UsageError(f"{len(samples)} samples of {path} have a key that begins with {prefix!r}")
        return SampleView(sample=samples[0], calls=list(reader.calls(samples[0].key)))

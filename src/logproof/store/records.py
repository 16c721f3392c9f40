"""What a run store holds: the provenance of a run, its calls, its samples and later scores.

A call is one request with its reply; a sample is one dataset row of one task in one repeat, which several
calls may serve; a score record is what a later scorer made of a sample's stored replies. Fields typed `object`
take any value that has a canonical JSON form (store/digest.py) and read back as plain JSON values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from logproof.store.packed_columns import Column

Status = Literal["ok", "failed"]


class RunProvenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers of a run come from; stored once.

    These decide its results, and a resume must bring them unchanged:
        config: resolved settings that change what is asked or how it is scored.
        model: identity of the model (name, root, revision; no URL).
        tasks, datasets, few_shot: name -> content digest.
    These may differ in a resume and are noted:
        scheduling: concurrency, time limits, retries, progress.
        endpoints: display URLs, without a key.
        versions: package, engine and python versions. facts: what the probe of the endpoint found.
        planned: task -> samples that the run means to finish.
    fingerprints: what the endpoint says of its deployment; an unknown one must be accepted by name.
    """

    config: Mapping[str, object]
    model: Mapping[str, object]
    tasks: Mapping[str, str]
    datasets: Mapping[str, str] = {}
    few_shot: Mapping[str, str] = {}
    scheduling: Mapping[str, object] = {}
    endpoints: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    facts: object = None
    planned: Mapping[str, int] = {}


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call.

    key: `call_key`. sample_key: the sample it serves. part: what it is in that sample ("option 2"); key, sample
    and part together name the record, and putting it again replaces it. seconds: wall time of all attempts.
    error_type, error: class and message of what failed. request: as sent, or its IR. response: a summary
    (text, finish reason, usage). columns: wide channels. reply_digest: of the raw bytes. endpoint: display
    name. model, fingerprint: as the reply reported them. time: seconds since the epoch, when it ended.
    """

    key: str
    sample_key: str
    dialect: str
    status: Status
    part: str = ""
    error_type: str | None = None
    error: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    request: object = None
    response: object = None
    reply_digest: str | None = None
    endpoint: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    time: float = msgspec.field(default_factory=time.time)
    columns: Mapping[str, Column] = {}


class SampleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sample. Putting the same key again replaces it.

    key: `sample_key`. index: place of the row in dataset order, from 0. status: failed is not wrong; reason says
    why. scores: metric -> value, empty if failed. gold: the expected answer. output: what was compared with it.
    """

    key: str
    task: str
    row_id: str
    index: int
    status: Status
    repeat: int = 0
    reason: str | None = None
    scores: Mapping[str, object] = {}
    gold: object = None
    output: object = None
    time: float = msgspec.field(default_factory=time.time)


class Scorer(msgspec.Struct, frozen=True, kw_only=True):
    """A later scoring of stored replies. digest: of `config`, which says all that decides its scores."""

    digest: str
    name: str
    config: object = None
    time: float = msgspec.field(default_factory=time.time)


class ScoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one scorer made of one sample; stands beside the sample's first scores, never over them."""

    sample_key: str
    scorer: str
    status: Status
    reason: str | None = None
    scores: Mapping[str, object] = {}
    output: object = None
    time: float = msgspec.field(default_factory=time.time)


class WriteSession(msgspec.Struct, frozen=True, kw_only=True):
    """One opening of the store for writing: what may differ between the first run and its resumes."""

    time: float
    pid: int
    scheduling: Mapping[str, object]
    endpoints: Sequence[str]
    fingerprints: Sequence[str]
    versions: Mapping[str, str]


class TaskCount(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one task by status. planned: as the run set out, None if it did not say."""

    task: str
    ok: int
    failed: int
    planned: int | None = None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A store in numbers. created: seconds since the epoch. fingerprints: as replies reported -> calls."""

    path: str
    created: float
    sessions: int
    tasks: tuple[TaskCount, ...]
    calls_ok: int
    calls_failed: int
    fingerprints: dict[str, int]
    models: dict[str, int]
    scorers: tuple[Scorer, ...]
    bytes: int

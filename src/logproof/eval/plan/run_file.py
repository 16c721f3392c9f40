"""Run files: many tasks over many models in one YAML file.

    out: runs/monday              # a directory; each model's run goes into a directory of its label below it
    tasks: [arc_easy_ppl, {name: gsm8k_gen, settings: {shots: 3, limit: "50"}}]
    models:
      - {label: native, url: "http://127.0.0.1:8000", dialect: vllm_native}
      - {label: two, url: ["http://one:8000", "http://two:8000"], key_env: MY_KEY}
    settings: {seed: 7}           # of every task; a task's own settings win
    data: path/to/rows            # optional, as all that follows
    concurrency: auto

Every option of `logproof eval` has its key here. Every unknown key is refused with the nearest known one. A key is
never written here: `key_env` names the environment variable that holds it.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import yaml

from logproof.client.outage import PATIENCE_S
from logproof.client.pool import MAX_CONCURRENCY
from logproof.errors import UsageError, clip
from logproof.eval.plan.prepare import Entry
from logproof.eval.tasks.task import Settings
from logproof.files import read_bounded

MAX_BYTES = 1 << 20
"""Largest run file."""

_T = TypeVar("_T", bound=msgspec.Struct)

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`(?: - at `\$\.?(.*)`)?")


class TaskEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task. settings: those that differ from the file's."""

    name: str
    settings: dict[str, object] = {}


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model. url: one endpoint of it, or several. label: name of its directory. name: served name. timeout:
    seconds that one attempt may take. The rest: client/connect.py `Options`."""

    url: str | list[str]
    label: str
    name: str | None = None
    dialect: str = "auto"
    key_env: str | None = None
    headers: dict[str, str] = {}
    tokenizer: str | None = None
    drop: list[str] = []
    timeout: float | None = None

    @property
    def urls(self) -> list[str]:
        """Its endpoints."""
        return [self.url] if isinstance(self.url, str) else self.url


class RunFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole run file. limit and the like are in `settings`, see eval/tasks/task.py `Settings`.

    resume, accept, canary, log, metrics: see eval/run/run.py `Order`. fail_fast: as max_failures of 0. patience:
    see eval/run/runner.py `RunPolicy`.
    """

    out: str
    tasks: list[str | TaskEntry]
    models: list[ModelEntry]
    settings: dict[str, object] = {}
    data: str | None = None
    concurrency: int | Literal["auto"] = 8
    max_failures: int | None = None
    patience: float = PATIENCE_S
    fail_fast: bool = False
    resume: bool = False
    accept: list[str] = []
    canary: bool = True
    log: str | None = None
    metrics: int | None = None

    def entries(self) -> list[Entry]:
        """Tasks with their own settings over the file's. Raises UsageError for a setting that is none."""
        entries = [t if isinstance(t, TaskEntry) else TaskEntry(t) for t in self.tasks]
        return [(t.name, settings_of({**self.settings, **t.settings})) for t in entries]


def load(path: Path) -> RunFile:
    """Read and check a run file. Raises UsageError naming the fault and, for an unknown key, the nearest one,
    InputError."""
    return parse(read_bounded(path, MAX_BYTES), str(path))


def parse(text: bytes, name: str) -> RunFile:
    """The run file in a YAML text. Raises UsageError."""
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{name} is no YAML: {clip(str(error), 200)}") from None
    run = _convert(loaded, RunFile, name)
    run.entries()
    labels = [m.label for m in run.models]
    bad = next((label for label in labels if not _LABEL.fullmatch(label) or labels.count(label) > 1), None)
    if bad is not None:
        raise UsageError(f"{name}: label {clip(bad, 60)!r} is used twice, or is no plain directory name")
    width = run.concurrency
    if not run.models or not run.tasks or (width != "auto" and not 1 <= width <= MAX_CONCURRENCY):
        raise UsageError(f"{name}: it needs a model, a task and a concurrency from 1 to {MAX_CONCURRENCY}, or auto")
    if run.patience < 0:
        raise UsageError(f"{name}: patience is seconds from 0 on")
    if not all(m.urls for m in run.models) or (run.max_failures or 0) < 0 or not 0 <= (run.metrics or 0) < 1 << 16:
        raise UsageError(f"{name}: a model without a url, max_failures below 0, or metrics that is no port")
    return run


def settings_of(values: dict[str, object]) -> Settings:
    """Settings out of plain values. A limit may be a number. Raises UsageError."""
    limit = values.get("limit")
    plain = {**values, "limit": str(limit)} if isinstance(limit, (int, float)) else values
    return _convert(plain, Settings, "settings")


def _convert(value: object, kind: type[_T], where: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {clip(str(error), 200)}", hint=_nearest(str(error))) from None


def _nearest(message: str) -> str | None:
    """The known key nearest to an unknown one."""
    match = _UNKNOWN.search(message)
    if match is None:
        return None
    known = [f for kind in (RunFile, ModelEntry, TaskEntry, Settings) for f in kind.__struct_fields__]
    near = difflib.get_close_matches(match[1], known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(dict.fromkeys(known))}"

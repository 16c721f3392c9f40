"""Report: what a run's store says, as a record, a table's rows and report.json.

A run is suspect when its numbers exist but should not be trusted as they stand; each reason says why. Reasons:
all options of a row equal in more than SUSPECT_ROWS samples; all scores zero, or the first token of the prompt
doubled, likewise; more than EMPTY_SHARE of the texts empty; more than TRUNCATED_SHARE cut at their length;
replies from several models or fingerprints; a canary that drifted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from logproof.eval.report.drift import KEY, Drift, drift
from logproof.eval.report.rates import Rate
from logproof.eval.report.totals import TaskTally, tally
from logproof.eval.tasks.task_list import TASKS
from logproof.files import write_atomic
from logproof.store.reader import StoreReader

SUSPECT_ROWS = 3
EMPTY_SHARE = 0.2
TRUNCATED_SHARE = 0.5

FILE = "report.json"

Status = Literal["ok", "failures", "suspect", "empty"]


class Report(msgspec.Struct, frozen=True):
    """One run. tasks: in the order of the run's provenance. suspect: one line a reason.

    model, dialect, endpoints, versions, fingerprints: as stored. scorer: None for the first scores.
    settings, methods, shots: of each task; methods is `ways` in the file. canary: how a fixed prompt scored all
    through, None where it was not requested. denominators: in words, for whoever reads the file alone. notes: what
    limits the run without making it suspect.
    """

    model: str
    dialect: str
    endpoints: tuple[str, ...]
    versions: dict[str, str]
    fingerprints: dict[str, int]
    tasks: tuple[TaskTally, ...]
    suspect: tuple[str, ...]
    settings: object = None
    methods: object = msgspec.field(default=None, name="ways")
    shots: object = None
    dropped_leaves: object = None
    notes: tuple[str, ...] = ()
    canary: Drift | None = None
    scorer: str | None = None
    denominators: str = "rates are over rows with a scored sample; failed samples are in no rate"

    @property
    def status(self) -> Status:
        """empty: nothing scored; failures: some samples failed; suspect: see the reasons; else ok."""
        if not any(t.scored for t in self.tasks):
            return "empty"
        if any(t.failed for t in self.tasks):
            return "failures"
        return "suspect" if self.suspect else "ok"

    @property
    def exit_code(self) -> int:
        """0 ok, 1 failed samples or nothing scored, 2 suspect."""
        return {"ok": 0, "failures": 1, "empty": 1, "suspect": 2}[self.status]


def build(reader: StoreReader, scorer: str | None = None) -> Report:
    """The report of a stored run, also one under way. scorer: digest of a later scorer. Raises StoreError."""
    provenance, summary = reader.provenance, reader.summary()
    canary = drift(reader.calls(KEY))
    config = provenance.config
    tasks = tuple(
        tally(name, reader.samples(name, scorer), _draws(config.get("settings"), name)) for name in provenance.tasks
    )
    return Report(
        model=str(provenance.model.get("name")),
        dialect=str(config.get("dialect")),
        endpoints=tuple(dict.fromkeys(e for session in reader.sessions() for e in session.endpoints)),
        versions=dict(provenance.versions),
        fingerprints=summary.fingerprints,
        tasks=tasks,
        suspect=(
            *_mixed(summary.models, "models"),
            *_another(summary.models, str(provenance.model.get("name"))),
            *_mixed(summary.fingerprints, "fingerprints"),
            *([canary.suspect] if canary is not None and canary.suspect is not None else []),
            *suspects(tasks),
        ),
        settings=config.get("settings"),
        methods=config.get("ways"),
        shots=config.get("shots"),
        dropped_leaves=config.get("dropped_leaves"),
        notes=unseeded(config.get("ways")),
        canary=canary,
        scorer=scorer,
    )


def unseeded(methods: object) -> tuple[str, ...]:
    """One note a task whose draws carried no seed. methods: of the run's configuration, as stored."""
    by_task = methods if isinstance(methods, dict) else {}
    names = [name for name, m in by_task.items() if isinstance(m, dict) and m.get("seeded") is False]
    return tuple(f"{n}: drawn without seeds, as this wire takes none: another run draws other texts" for n in names)


_COUNTED = {
    "all_equal": "all options of a row score alike",
    "all_zero": "every score is zero",
    "doubled_start": "the prompt begins with one token twice (is a mark of the beginning added twice?)",
}
"""Flag -> what it says of more than SUSPECT_ROWS samples."""


def suspects(tasks: tuple[TaskTally, ...]) -> list[str]:
    """Reasons for doubt that the tallies of the tasks give."""
    reasons = []
    for t in tasks:
        for flag, words in _COUNTED.items():
            if t.flags.get(flag, 0) > SUSPECT_ROWS:
                reasons.append(f"{t.task}: {words} in {t.flags[flag]} of {t.scored} samples")
        for flag, share, words in (("empty", EMPTY_SHARE, "is empty"), ("truncated", TRUNCATED_SHARE, "is cut")):
            if t.scored and t.flags.get(flag, 0) > share * t.scored:
                reasons.append(f"{t.task}: the text {words} in {t.flags[flag]} of {t.scored} samples")
    return reasons


def write(report: Report, directory: Path) -> Path:
    """Write report.json into a run's directory and return its path. Raises StoreError."""
    path = directory / FILE
    body = {**msgspec.to_builtins(report), "status": report.status}
    write_atomic(path, msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n")
    return path


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """(task, metric, value with its standard error, rows, failed, notes), one line a metric."""
    lines: list[tuple[str, ...]] = []
    for t in report.tasks:
        notes = "; ".join([*(f"{n} {flag}" for flag, n in t.flags.items()), *_crossed(t)])
        rates = {**t.metrics, **t.families}
        for i, (metric, rate) in enumerate(rates.items()):
            first = (t.task, str(t.failed), notes) if i == 0 else ("", "", "")
            lines.append((first[0], metric, shown(rate), str(rate.n), first[1], first[2]))
        if not rates:
            lines.append((t.task, "none", "", "0", str(t.failed), notes))
    return lines


def shown(rate: Rate) -> str:
    """A rate with its standard error."""
    return f"{rate.value:.4f} ± {rate.se:.4f}" if rate.se is not None else f"{rate.value:.4f}"


def _crossed(t: TaskTally) -> list[str]:
    return [f"{t.crossings} crossings"] if t.crossings else []


def _mixed(calls: dict[str, int], what: str) -> list[str]:
    if len(calls) < 2:
        return []
    return [f"replies came from several {what}: {', '.join(f'{name} ({n} calls)' for name, n in calls.items())}"]


def _another(models: dict[str, int], requested: str) -> list[str]:
    """A wire that names the model in its replies must name the one that was requested."""
    others = [name for name in models if name != requested]
    return (
        [f"{requested} was asked, the replies name {', '.join(others)}"] if others and requested not in models else []
    )


def _draws(settings: object, task: str) -> int:
    own = settings.get(task) if isinstance(settings, dict) else None
    repeats = own.get("repeats") if isinstance(own, dict) else None
    draws = task in TASKS and TASKS[task].kind == "gen"
    return repeats if draws and isinstance(repeats, int) else 1

"""A run that is killed again and again: the same tasks once undisturbed and once with SIGKILL at random instants.

The run is a process of its own (the command `eval` with --resume); the toy engine answers it over HTTP from this one,
at once but for a random delay. bench/kill_run.py is the long form, test_kill.py the short one.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from eval.toy import ToyEngine, serving
from fakes.server import FakeServer, Reply
from logproof.errors import StoreError
from logproof.store.digest import canonical
from logproof.store.reader import StoreReader

TASKS = ("gsm8k_gen", "arc_easy_ppl")
COMMAND = "import typer; from logproof.cli.evaluate.eval import evaluate; typer.run(evaluate)"
MOMENT = 0.002
"""Seconds between two looks at a run."""


class KillResult(msgspec.Struct):
    """What came of it. different: records that are not as in the undisturbed run. again: requests of samples
    that a store held as done. repeated: requests sent more than once. late: longest seconds between a reply's
    departure and a kill that lost it. lives: kills, and whether they came before the first request."""

    samples: int = 0
    calls: int = 0
    kills: int = 0
    early: int = 0
    different: list[str] = []
    again: list[str] = []
    repeated: int = 0
    late: float = 0.0


class Watched:
    """A toy engine behind HTTP that notes when it answered which prompt. jitter: longest delay, seconds."""

    def __init__(self, seed: int, jitter: float) -> None:
        self.engine = ToyEngine(self._late)
        self.answered: list[tuple[float, str]] = []
        self._rng, self._jitter = random.Random(seed), jitter

    def _late(self, body: dict[str, Any]) -> Any:
        delay = self._rng.random() * self._jitter
        self.answered.append((time.monotonic() + delay, body["prompt"]))
        return Reply(json=self.engine.answer(body), delay=delay)


def write_rows(directory: Path, rows: int) -> None:
    """`rows` rows a task, told apart by their numbers."""
    directory.mkdir()
    words = [" ".join(str(i)) for i in range(rows)]
    gen = [{"question": f"Count to {w} and back.", "answer": "It is\n#### 7"} for w in words]
    choices = {"text": ["yes", "no", "never", "often"], "label": list("ABCD")}
    ppl = [{"id": w, "question": f"Is {w} even?", "choices": choices, "answerKey": "A"} for w in words]
    for name, lines in (("gsm8k", gen), ("arc_easy", ppl)):
        (directory / f"{name}.test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def start(fake: FakeServer, data: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    """The run, begun or resumed."""
    options = [
        "--model",
        fake.url,
        "--data",
        str(data),
        "--out",
        str(out),
        "--shots",
        "0",
        "--resume",
        "-c",
        "8",
        "--no-canary",
    ]
    with log.open("ab") as kept:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *TASKS, *options], stdout=kept, stderr=kept, start_new_session=True
        )


def finish(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the end of a run that nobody kills."""
    if process.wait(600) != 0:
        raise AssertionError(f"the run ended with {process.returncode}: {log.read_text()[-2000:]}")


def done(out: Path) -> set[str]:
    """Keys of finished samples, none where a run was killed before it had a store."""
    try:
        with StoreReader(out) as store:
            return store.done()
    except StoreError:
        return set()


def records(out: Path) -> dict[str, str]:
    """Every record of a store without its times, by name."""
    found = {}
    with StoreReader(out) as store:
        for sample in store.samples():
            found[f"sample {sample.key}"] = canonical(msgspec.structs.replace(sample, time=0.0))
        for call in store.calls():
            columns = {name: list(values) for name, values in call.columns.items()}
            plain = msgspec.structs.replace(call, time=0.0, seconds=0.0, columns={}, endpoint=None)
            name = f"call {call.sample_key} {call.part} {call.key}"
            assert name not in found
            found[name] = canonical([plain, repr(columns)])
    return found


def prompts(out: Path) -> dict[str, set[str]]:
    """Sample key -> prompts of its calls."""
    found: dict[str, set[str]] = {}
    with StoreReader(out) as store:
        for call in store.calls(columns=False):
            request: Any = call.request
            found.setdefault(call.sample_key, set()).add(request["input"]["text"])
    return found


def kill_at_random(process: subprocess.Popen[bytes], watched: Watched, rng: random.Random, most: int) -> bool:
    """SIGKILL after a random number of replies, or, one time in five, after a random part of the start.

    False where the run had ended before.
    """
    seen = len(watched.answered)
    if rng.random() < 0.2:
        time.sleep(rng.random())
    else:
        target = seen + rng.randint(1, most)
        while process.poll() is None and len(watched.answered) < target:
            time.sleep(MOMENT)
        time.sleep(rng.random() * 0.1)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def killed_run(root: Path, samples: int, kills: int, seed: int, jitter: float = 0.01) -> KillResult:
    """Run `samples` samples undisturbed, then again with `kills` kills, and compare."""
    rng, told = random.Random(seed), KillResult()
    data, plain, out, log = root / "data", root / "plain", root / "killed", root / "log"
    write_rows(data, samples // len(TASKS))
    watched = Watched(seed, jitter)
    with serving(watched.engine) as fake:
        finish(start(fake, data, plain, log), log)
        asked, most = prompts(plain), 2 * len(watched.answered) // (kills + 2)
        watched.answered.clear()
        while told.kills < kills:
            _life(fake, watched, told, rng, most, asked, (data, out, log))
        before, sent = done(out), len(watched.answered)
        finish(start(fake, data, out, log), log)
    told.again += _again(before, asked, watched.answered[sent:])
    _compare(told, plain, out)
    told.repeated = len(watched.answered) - len({prompt for _, prompt in watched.answered})
    return told


def _life(
    fake: FakeServer,
    watched: Watched,
    told: KillResult,
    rng: random.Random,
    most: int,
    asked: dict[str, set[str]],
    paths: tuple[Path, Path, Path],
) -> None:
    """One life of the run, from its start to its kill."""
    data, out, log = paths
    before, sent = done(out), len(watched.answered)
    alive = kill_at_random(start(fake, data, out, log), watched, rng, most)
    died = time.monotonic()
    if not alive:
        raise AssertionError(f"the run ended before its kill: {log.read_text()[-2000:]}")
    mine = watched.answered[sent:]
    told.kills += 1
    told.early += not mine
    told.again += _again(before, asked, mine)
    told.late = max([told.late, *(died - at for at in _lost(done(out), asked, mine))])


def _again(before: set[str], asked: dict[str, set[str]], sent: list[tuple[float, str]]) -> list[str]:
    """Prompts of finished samples among those sent."""
    finished = {prompt for key in before for prompt in asked[key]}
    return [prompt for _, prompt in sent if prompt in finished]


def _lost(after: set[str], asked: dict[str, set[str]], sent: list[tuple[float, str]]) -> list[float]:
    """When each sample that was sent whole, and is not stored, had its last reply."""
    times: dict[str, float] = {}
    for at, prompt in sent:
        times[prompt] = at
    lost = [key for key, parts in asked.items() if key not in after and all(p in times for p in parts)]
    return [max(times[p] for p in asked[key]) for key in lost]


def _compare(told: KillResult, plain: Path, out: Path) -> None:
    want, have = records(plain), records(out)
    told.samples = sum(name.startswith("sample") for name in want)
    told.calls = len(want) - told.samples
    told.different = [name for name in {*want, *have} if want.get(name) != have.get(name)]

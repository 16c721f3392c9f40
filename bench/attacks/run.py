"""The attack bench: honest and dishonest records by real engines, judged by the real verdict and by two peers.

    python bench/attacks/run.py --sequences 16 --cache DIR

Draws and replays what DIR does not hold yet, measures, writes results.json beside this file and the tables of
docs/attacks.md. README.md beside it says how everything is made and how long it takes.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import forge
import measure
import msgspec
import numpy as np
import page
import plan
import rows
from arrays import CLAIM, K, Record, load, records

from logproof.launch.places import models_dir
from logproof.verify.calibrate.fit import HonestPair

HERE = Path(__file__).resolve().parent
HONEST = "honest bfloat16 executor"
EXACT = "exact"
PAGE = HERE.parents[1] / "docs" / "attacks.md"


class Cache:
    """Where drawn and scored sets lie, and how to get them."""

    def __init__(self, root: Path, model: Path, chunks: int) -> None:
        self.root, self.model = root, model
        self.chunks = chunks
        self.prompter = plan.Prompter(model)

    def file(self, name: str, part: str) -> Path:
        """part: draw, score, tokens, or exact for a score by float32."""
        return self.root / f"{name}.{part}.npz"

    def groups(self) -> list[plan.Sequences]:
        """Honest sequences in groups."""
        return [self.prompter.honest(i) for i in range(len(plan.GROUPS))]

    def edited(self) -> tuple[list[int], plan.Sequences]:
        """Honest sequences that are edited: of those that the first round holds out. Also their places in group 0."""
        whole = self.groups()[0]
        at = list(range(0, len(whole.names), measure.FOLDS))
        parts = (whole.names, whole.claimed, whole.sent, whole.seeds)
        return at, plan.Sequences(*(tuple(p[i] for i in at) for p in parts))


def draw_task(cache: Cache, name: str, given: plan.Sequences, **how: object) -> dict[str, object]:
    """A task of worker.py: draw."""
    out = str(cache.file(name, "draw"))
    return {"type": "draw", "out": out, "prompts": given.sent, "seeds": given.seeds, "width": K, **how}


def score_task(
    cache: Cache, name: str, given: plan.Sequences, tokens: str = "draw", part: str = "score"
) -> dict[str, object]:
    """A task of worker.py: what the right model says after the claimed prompt."""
    out, source = str(cache.file(name, part)), str(cache.file(name, tokens))
    return {"type": "score", "out": out, "prompts": given.claimed, "tokens": source}


def work(cache: Cache, model: Path, dtype: str, tasks: list[dict[str, object]]) -> None:
    """Run one engine on the tasks that are not done."""
    left = [t for t in tasks if not Path(str(t["out"])).exists()]
    if not left:
        return
    listed = cache.root / "tasks.json"
    listed.write_bytes(msgspec.json.encode({"model": str(model), "dtype": dtype, "tasks": left}))
    print(f"{model.name} in {dtype}: {len(left)} tasks", flush=True)
    subprocess.run([sys.executable, str(HERE / "worker.py"), str(listed)], check=True)


def variant(cache: Cache, kind: str) -> Path:
    """The checkpoint folder of a kind, made where it is missing."""
    folder = cache.root / f"model-{kind}"
    if kind == "honest":
        return cache.model
    if not folder.exists():
        argv = [sys.executable, str(HERE / "variants.py"), str(cache.model), str(folder), kind]
        subprocess.run(argv, check=True)
    return folder


def attack_draws(cache: Cache, sets: list[plan.Set]) -> list[dict[str, object]]:
    """Draw tasks of these sets."""
    tasks = []
    for s, name, given in chunks(cache, sets):
        how = {"length": s.length, "temperature": s.temperature, "top_p": s.top_p, "ban": s.ban}
        tasks.append(draw_task(cache, name, given, together=s.together, **how))
    return tasks


def chunks(cache: Cache, sets: list[plan.Set]) -> Iterator[tuple[plan.Set, str, plan.Sequences]]:
    """All chunks of these sets, with their names, the first chunk of every set first."""
    for i in range(cache.chunks):
        for s in sets:
            yield s, f"{s.name}.{i}", cache.prompter.attack(s, i)


def collect(cache: Cache, chosen: list[plan.Set]) -> None:
    """All engines, one after the other. The right model comes last, for it scores what the others drew."""
    for kind, dtype in dict.fromkeys((s.kind, s.dtype) for s in chosen if (s.kind, s.dtype) != ("honest", "bfloat16")):
        some = [s for s in chosen if (s.kind, s.dtype) == (kind, dtype)]
        tasks = attack_draws(cache, some)
        if kind == "honest":
            tasks += [score_task(cache, name, given, part=EXACT) for _, name, given in chunks(cache, some)]
        if any(not Path(str(t["out"])).exists() for t in tasks):
            work(cache, variant(cache, kind), dtype, tasks)
    right = attack_draws(cache, [s for s in chosen if (s.kind, s.dtype) == ("honest", "bfloat16")])
    right += [score_task(cache, name, given) for _, name, given in chunks(cache, chosen)]
    for i, group in enumerate(cache.groups()):
        _, _, together, length = plan.GROUPS[i]
        right.append(draw_task(cache, f"honest.{i}", group, length=length, together=together))
        right.append(score_task(cache, f"honest.{i}", group))
    work(cache, cache.model, "bfloat16", right)
    write_edits(cache)
    work(cache, cache.model, "bfloat16", [score_task(cache, "edited", cache.edited()[1], "tokens")])


def write_edits(cache: Cache) -> None:
    """The edited completions, for the engine to score."""
    at, _ = cache.edited()
    drawn = load(cache.file("honest.0", "draw"))
    tokens = np.stack([forge.edited_ids(drawn[i]) for i in at]).astype(np.int32)
    np.savez(cache.file("edited", "tokens"), tokens=tokens)


def known(cache: Cache, name: str, given: plan.Sequences, part: str = "score") -> list[Record]:
    """Records of a set, empty where its files are not there. part: whose replay."""
    draw, score = cache.file(name, "draw"), cache.file(name, part)
    if not (draw.exists() and score.exists()):
        print(f"{name} is missing, and its rows with it", flush=True)
        return []
    return records(given.names, given.claimed, given.seeds, load(draw), load(score))


def edited_records(cache: Cache) -> list[Record]:
    """Edited completions with the right model's logprobs of them, as their record and as their replay."""
    if not cache.file("edited", "score").exists():
        return []
    given, scored = cache.edited()[1], load(cache.file("edited", "score"))
    return records(given.names, given.claimed, given.seeds, [c.narrow(K) for c in scored], scored)


def attack_records(cache: Cache, chosen: list[plan.Set]) -> dict[str, list[Record]]:
    """Records of every set that the cache holds."""
    sets: dict[str, list[Record]] = {}
    for s, name, given in chunks(cache, chosen):
        if found := known(cache, name, given):
            sets.setdefault(s.name, []).extend(found)
        if s.dtype == "float32":
            sets.setdefault(EXACT, []).extend(known(cache, name, given, EXACT))
    if edited := edited_records(cache):
        sets["edited"] = edited
    return sets


def names(some: Sequence[Record]) -> list[str]:
    """Their names, in order."""
    return [r.name for r in some]


def measured(cache: Cache, chosen: list[plan.Set], jobs: int) -> page.Results:
    """Every count from what the cache holds. Raises SystemExit without honest sequences."""
    honest = [r for i, g in enumerate(cache.groups()) for r in known(cache, f"honest.{i}", g)]
    if not honest:
        raise SystemExit("the cache holds no honest sequences")
    pairs, scores = measure.pairs(honest), measure.scores(honest)
    first, sets = measure.calibrated(honest, pairs, 0), attack_records(cache, chosen)
    todo: list[Callable[[], list[measure.Count]]] = [partial(honest_counts, honest, pairs, scores, first)]
    todo += [partial(honest_counts, honest, pairs, scores, None, f) for f in range(1, measure.FOLDS)]
    todo += [partial(row_counts, r, first, scores) for r in rows.rows(sets, first.held)]
    told = first.policy.selftest
    return page.Results(
        honest=len(honest),
        tokens=sum(len(r.own) for r in honest),
        counts=tuple(measure.added([c for found in at_once(todo, jobs) for c in found])),
        selftest_tokens=0 if told is None else told.tokens,
        selftest_violations=0 if told is None else told.violations,
        facts=facts(cache, first, sets.get(EXACT, [])),
    )


def at_once(todo: list[Callable[[], list[measure.Count]]], jobs: int) -> list[list[measure.Count]]:
    """Results in order, worked out by some forked processes, which see this one's records without copying them."""
    WORK.extend(todo)
    gc.freeze()  # else every collection in a child walks, and so copies, all records
    with get_context("fork").Pool(jobs) as pool:
        return list(pool.imap(one_of, range(len(todo))))


WORK: list[Callable[[], list[measure.Count]]] = []


def one_of(number: int) -> list[measure.Count]:
    """One piece of WORK."""
    found = WORK[number]()
    print(f"measured: {found[0].row if found else 'nothing'}", flush=True)
    return found


def honest_counts(
    honest: list[Record],
    pairs: list[HonestPair],
    scores: measure.Scores,
    done: measure.Calibration | None,
    fold: int = 0,
) -> list[measure.Count]:
    """The counts of one round on what it held out."""
    one = done or measure.calibrated(honest, pairs, fold)
    peers = measure.peers(HONEST, scores, names(one.held), scores, names(one.scored))
    return [*measure.held_out(HONEST, one.policy), *peers]


def row_counts(row: rows.Row, first: measure.Calibration, scores: measure.Scores) -> list[measure.Count]:
    """The counts of one row."""
    found = measure.scores(row.records, row.lengths)
    ours = measure.ours(row.words, row.records, first.policy, row.forge, row.lengths)
    return [*ours, *measure.peers(row.words, found, names(row.records), scores, names(first.scored))]


def facts(cache: Cache, first: measure.Calibration, exact: Sequence[Record]) -> dict[str, str]:
    """Conditions of the run, in words."""
    told, policy = first.policy.selftest, first.policy
    drawn = "" if told is None else f"{told.violations} of {told.tokens} honest tokens contradict their seed (S4)"
    there = [g for i, g in enumerate(plan.GROUPS) if cache.file(f"honest.{i}", "score").exists()]
    parts = "; ".join(f"{n} of {length} tokens, {together} in flight" for _, n, together, length in there)
    return {
        "engine": f"vLLM {CLAIM.engine.version} on a CPU, SmolLM2-135M-Instruct in bfloat16, k {K}, 64 replayed",
        "honest": f"{sum(n for _, n, *_ in there)} sequences: {parts}",
        "policy": f"level {policy.level:g}, {len(first.scored)} scored sequences a round; {measure.FOLDS} rounds",
        "self-test": drawn,
        "float32 executor and float32 verifier": measure.exactness(exact),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--cache", type=Path, required=True, help="folder for models, completions and replays")
    most = plan.CHUNK * plan.CHUNKS
    asked.add_argument("--sequences", type=int, default=most, help=f"of each attack, in chunks of {plan.CHUNK}")
    asked.add_argument("--model", type=Path, default=models_dir() / "smollm2", help="SmolLM2's checkpoint folder")
    asked.add_argument("--no-engines", action="store_true", help="only measure what the cache holds")
    asked.add_argument("--jobs", type=int, default=1, help="processes that measure")
    given = asked.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    cache = Cache(given.cache, given.model, -(-given.sequences // plan.CHUNK))
    chosen = list(plan.SETS)
    if not given.no_engines:
        collect(cache, chosen)
    results = measured(cache, chosen, given.jobs)
    (HERE / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    if PAGE.exists():
        page.update(PAGE, results)


if __name__ == "__main__":
    main()

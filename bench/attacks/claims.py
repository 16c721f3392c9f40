"""Tries to make records of deviating executions valid by what they claim, far more often than the tests do.

python bench/attacks/claims.py [--joint 2000] [--pairs 3] [--policy exact]

The executors are those of tests/verify/cheats.py, on the tests' tiny engine; every record is sealed again and judged by
the path of `logproof verify`, once with the requester's own request at hand and once as it is looked up by the record.
For each policy: every value of every claim on every record that is not valid as it stands, each pair of claims on
--pairs records, and --joint random assignments of 2 to 25 claims on every record. Prints a Markdown table; exit code 1
where anything was lifted.

policies: exact (calibrated on a pair of engines that agree), noisy (on one that differs by 0.02 nat), replayed (exact,
and requires that level).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from fakes.server import FakeServer
from verify.cheats import Court, Records, court, court_records
from verify.claim_domains import CLAIMS, Change, dangerous, domain, joint, plain_record, stated
from verify.tiny import Tiny

POLICIES: dict[str, tuple[float, dict[str, object]]] = {
    "exact": (0.0, {}),
    "noisy": (0.02, {"level": 0.2}),
    "replayed": (0.0, {"require": "replayed"}),
}
"""Noise of the trusted engine, nats, and what the policy aims at."""
SEED = 12


def assignments(
    plain: dict[str, object], joints: int, each: int, random: Random
) -> Iterator[tuple[str, str, list[Change]]]:
    """What is tried: its kind, the record and the claims. plain: records in JSON by name."""
    for name, record in plain.items():
        for path in CLAIMS:
            yield from (("single", name, [(path, value)]) for value in domain(path, record))
    values = {name: {path: dangerous(path, record) for path in CLAIMS} for name, record in plain.items()}
    for pair in combinations(CLAIMS, 2):
        for name in random.sample(list(plain), min(each, len(plain))):
            yield "pair", name, [(path, random.choice(values[name][path])) for path in pair]
    for name in plain:
        for _ in range(joints):
            yield "joint", name, joint(values[name], random)


async def tried(one: Court, records: Records, joints: int, each: int) -> tuple[dict[str, int], list[str], list[str]]:
    """How many assignments of each kind were judged, those that lifted a record, and records valid as they stand."""
    valid = [n for n, a in records.cheats.items() if "valid" in await statuses(one, records, n, a, [])]
    plain = {n: plain_record(a) for n, a in records.cheats.items() if n not in valid}
    counts, lifted = dict.fromkeys(("single", "pair", "joint"), 0), []
    for kind, name, changes in assignments(plain, joints, each, Random(SEED)):
        counts[kind] += 1
        if "valid" in await statuses(one, records, name, plain[name], changes):
            lifted.append(f"{name}: {kind}, {str(changes)[:300]}")
    return counts, lifted, valid


async def statuses(one: Court, records: Records, name: str, record: object, changes: Sequence[Change]) -> list[str]:
    """The statuses of a cheat's record with these claims. record: the artifact, or it in JSON."""
    cheat = records.cheats[name]
    made = stated(plain_record(cheat) if record is cheat else record, changes)
    return [v.status for v in await one.verdicts(made, cheat, records.requests)]


async def main(policies: Sequence[str], joints: int, each: int) -> int:
    """The table, and whether anything was lifted."""
    print("| policy | records | single claims | pairs | joint | lifted | valid as they stand |\n|" + " --- |" * 7)
    failed = 0
    for name in policies:
        noise, aim = POLICIES[name]
        with FakeServer() as fake:
            records = await court_records(fake, noise, **aim)
            async with court(fake, Tiny(jitter=noise), records.policy) as one:
                counts, lifted, valid = await tried(one, records, joints, each)
        judged = len(records.cheats) - len(valid)
        cells = [name, judged, *counts.values(), len(lifted), ", ".join(valid) or "none"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        print(*lifted[:40], sep="\n", file=sys.stderr)
        failed += len(lifted)
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joint", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--policy", choices=list(POLICIES), action="append")
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.policy or list(POLICIES), chosen.joint, chosen.pairs)))

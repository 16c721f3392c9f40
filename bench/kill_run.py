"""A run of 2,000 samples, killed with SIGKILL at 50 random instants and resumed each time, against an undisturbed one:

    python bench/kill_run.py [--samples N] [--kills N] [--seed N]

An instant fake engine with up to 10 ms of jitter answers; the run is a process of its own. Prints one line a claim
and ends with 1 unless every record equals the undisturbed run's and no finished sample was sent again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eval.run.killing import killed_run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        told = killed_run(Path(directory), args.samples, args.kills, args.seed)
    print(f"{told.samples} samples, {told.calls} calls; {told.kills} kills, {told.early} before the first request")
    print(f"records that differ from the undisturbed run's: {len(told.different)}")
    print(f"requests of finished samples sent again: {len(told.again)}")
    print(f"requests sent twice, in flight or not yet durable at a kill: {told.repeated}")
    print(f"oldest reply that a kill lost: {told.late * 1000:.0f} ms")
    print(f"{time.monotonic() - begun:.0f} s")
    return 1 if told.different or told.again else 0


if __name__ == "__main__":
    sys.exit(main())

"""A process that writes a run until it is killed or done: python -m store.writing DIRECTORY SAMPLES [MAX_FILE_BYTES].

Prints the number of durable samples after each flush; resumes what is there.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from logproof.errors import StoreError
from logproof.store.run_store import open_run
from store.making import CALLS, call, key_of, provenance, sample


def main(path: Path, samples: int, limit: int | None) -> int:
    with open_run(path, provenance(), resume=True) as store:
        done = store.done()
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for number in range(samples):
            if key_of(number) in done:
                continue
            for part in range(CALLS):
                store.put_call(call(number, part))
            store.put_sample(sample(number))
            if number % 5 == 4:
                store.flush()
                print(number + 1, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
    except StoreError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)

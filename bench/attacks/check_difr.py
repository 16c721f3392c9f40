"""Does rivals.py compute what token-difr 0.1.2 computes? Run by hand against the package itself:

    pip download --no-deps token-difr==0.1.2 && unzip token_difr-0.1.2-*.whl -d difr
    python bench/attacks/check_difr.py --package difr/token_difr --cache DIR

Only its common.py is loaded, for the rest of it needs openai, tinker and datasets. Prints the largest difference of the
mean capped margin over some honest and some int8 records of the cache, under both noises.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import plan
import rivals
import torch
from arrays import TOP_K, VOCABULARY, Record, load, records

from logproof.launch.places import models_dir
from logproof.verify.stats.sampler_profiles import gumbel, profile

SOME = 2


def package(folder: Path) -> ModuleType:
    """The package's common.py."""
    spec = importlib.util.spec_from_file_location("difr_common", folder / "common.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"no common.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def full(record: Record, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], rest: float) -> torch.Tensor:
    """[n, vocabulary] with the listed cells filled."""
    table = torch.full((len(record.replay), VOCABULARY), rest)
    return table.scatter_(1, torch.from_numpy(record.replay.ids), torch.from_numpy(values).float())


def margins(common: ModuleType, record: Record) -> tuple[float, float]:
    """The package's mean capped margin with its own noise, and with the engine's."""
    n = len(record.replay)
    logits = full(record, record.replay.logprobs, float("-inf"))
    tops = (torch.full((n,), TOP_K), torch.full((n,), 1.0))
    gold = torch.from_numpy(record.replay.sampled_ids)
    probs = common._get_probs(logits.clone(), 1.0, tops[0].clone(), tops[1])
    args = (logits.clone(), probs, gold, tops[0].clone(), tops[1])
    shipped = common._verify_vllm_gumbel_max(1.0, record.seed, *args)[2]
    noise = gumbel(profile("v1-cpu-splitmix"), record.seed, record.replay.ids, len(record.prompt))
    cut = ~torch.isfinite(common._apply_top_k_top_p(logits.clone(), tops[0].clone(), tops[1]))
    given = common._compute_margin_batch(logits, full(record, np.exp(-noise), 1.0), cut, 1.0, gold)
    return float(shipped.clamp(max=rivals.CAP).mean()), float(given.clamp(max=rivals.CAP).mean())


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--package", type=Path, required=True)
    asked.add_argument("--cache", type=Path, required=True)
    asked.add_argument("--model", type=Path, default=models_dir() / "smollm2")
    given = asked.parse_args()
    common, prompter = package(given.package), plan.Prompter(given.model)
    int8 = next(s for s in plan.SETS if s.name == "int8")
    sources = {"honest.0": prompter.honest(0), "int8.0": prompter.attack(int8, 0)}
    worst = [0.0, 0.0]
    for name, some in sources.items():
        own, replay = (load(given.cache / f"{name}.{part}.npz") for part in ("draw", "score"))
        for record in records(some.names, some.claimed, some.seeds, own, replay)[:SOME]:
            ours = rivals.difr_shipped(record), rivals.difr(record)
            worst = [max(w, abs(a - b)) for w, a, b in zip(worst, ours, margins(common, record), strict=True)]
    print(f"largest difference of {2 * SOME} records: own noise {worst[0]:.1e}, engine's noise {worst[1]:.1e}")


if __name__ == "__main__":
    main()

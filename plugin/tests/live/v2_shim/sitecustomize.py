"""Lets Model Runner V2 run on a CPU: Triton's interpreter runs its kernels.

Python imports this by name from PYTHONPATH in the server and in each of its child processes. vLLM asks Triton for an
active ``cpu`` driver; there is none, so this names one that says yes. Triton itself is not changed.

The interpreter cannot run vLLM's top-k/top-p kernel; vLLM's own torch version of it takes its place.
"""

from __future__ import annotations

import os
from types import ModuleType

os.environ["TRITON_INTERPRET"] = "1"
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"


class Driver:
    """A driver that is there."""

    @staticmethod
    def is_active() -> bool:
        return True


class Backend:
    """What Triton keeps for a backend."""

    compiler = None
    driver = Driver


try:
    from triton.backends import backends
except ImportError:
    pass
else:
    backends.setdefault("cpu", Backend)


def without_kernel(module: ModuleType) -> None:
    """``apply_top_k_top_p`` asks this name at each call."""
    module.__dict__["HAS_TRITON"] = False


try:
    from logproof_vllm.hooks import when_imported
except ImportError:
    pass
else:
    when_imported("vllm.v1.sample.ops.topk_topp_sampler", without_kernel)

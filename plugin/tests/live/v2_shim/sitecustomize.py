"""Lets Model Runner V2 run on a CPU: Triton's interpreter runs its kernels.

Python imports this by name from PYTHONPATH in the server and in each of its child processes. vLLM asks Triton for an
active ``cpu`` driver; there is none, so this names one that says yes. Triton itself is not changed.
"""

from __future__ import annotations

import os

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

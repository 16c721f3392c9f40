"""Token-exact access, scoring, replay and verification of LLM inference.

`Model` is the door for notebooks; the records of a request and a response are in `logproof.ir`, the typed
errors in `logproof.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logproof.version import VERSION

if TYPE_CHECKING:
    from logproof.client.model import Model as Model

__version__ = VERSION
__all__ = ["Model", "__version__"]


def __getattr__(name: str) -> object:
    """Load `Model`, and with it the HTTP client, only when it is asked for."""
    if name == "Model":
        from logproof.client.model import Model

        return Model
    raise AttributeError(f"module 'logproof' has no attribute {name!r}")

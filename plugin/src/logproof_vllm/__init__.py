"""Enforced replay and per-request ``logprobs_mode`` inside a stock vLLM.

A request flows ``server/asgi`` and ``server/body`` (its bytes) -> ``server/ingestion`` (fields to the canonical entry
of ``extra_args``) -> engine core (``engine/stops``, ``engine/grammar``) -> worker (``engine/v1`` or ``engine/v2``) ->
``server/asgi`` again (report added to the reply). ``plugin`` installs all of it.

Nothing here imports vLLM or torch at module load: every process of the server loads every module.
"""

__version__ = "0.1.0"

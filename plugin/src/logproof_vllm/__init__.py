"""Enforced replay and per-request ``logprobs_mode`` inside a stock vLLM.

Nothing here imports vLLM or torch at module load except the modules that define engine subclasses
(``rows``, ``guard``), which :mod:`logproof_vllm.plugin` imports only inside an engine process.

A request flows ``asgi`` (body) -> ``frontend`` (fields to canonical ``extra_args``) -> engine core
(``stops``, ``grammar``) -> worker (``v1`` or ``v2``) -> ``asgi`` (report added to the reply).
"""

__version__ = "0.1.0"

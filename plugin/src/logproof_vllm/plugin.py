"""Entry point ``vllm.general_plugins: logproof``; vLLM calls :func:`register` in every process it starts.

Order: settings, version, contract and trial, then the hooks of ``server`` in any case (so that nothing is ever silently
un-enforced), then the engine hooks if the contract holds. Twice equals once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from logproof_vllm import __version__, contract, settings
from logproof_vllm.engine import grammar, mq, stops, v1, v1_trial, v2
from logproof_vllm.runtime import STATUS
from logproof_vllm.server import asgi, ingestion

logger = logging.getLogger("vllm.logproof")

ENGINE_HOOKS: dict[str, Callable[[], None]] = {
    "stops in the scheduler": stops.install_scheduler,
    "stops in the detokenizer": stops.install_detokenizer,
    "grammar guard": grammar.install,
    "runner v1": v1.install,
    "runner v2": v2.install,
}


def register() -> None:
    """Install the plugin into this process.

    Raises :class:`settings.SettingError` for a bad variable, and RuntimeError in strict mode when the contract is
    broken; both stop the server from starting.
    """
    from vllm import envs

    settings.check()
    settings.register(envs)
    STATUS.limits = settings.limits()
    STATUS.vllm_version = contract.vllm_version()
    for problem in contract.check() or v1_trial.check():
        STATUS.add_problem(problem)
    ingestion.install()
    asgi.install()
    mq.install(settings.max_chunks())
    if not STATUS.problems:
        _install_engine_hooks()
    if STATUS.problems:
        _report()


def _install_engine_hooks() -> None:
    for name, install in ENGINE_HOOKS.items():
        try:
            install()
            STATUS.installed.append(name)
        except Exception as error:
            STATUS.add_problem(f"{name}: {type(error).__name__}: {error}")


def _report() -> None:
    reasons = "; ".join(STATUS.problems)
    versions = "" if contract.supported() in reasons else f"; versions that work: {contract.supported()}"
    line = f"logproof {__version__} is off: {reasons}{versions}"
    if settings.strict():
        raise RuntimeError(f"LOGPROOF_STRICT=1: {line}")
    logger.warning("%s", line)

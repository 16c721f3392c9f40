"""The example provider of the guide cheats as it says, and passes everything else on."""

from __future__ import annotations

import importlib.util
import json
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

from fakes.server import FakeServer
from proxy.running import call

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "cheating_provider.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cheating_provider", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_samples_hotter_and_passes_the_rest() -> None:
    cheat = loaded()
    with FakeServer() as fake:
        fake.on("/v1/completions", lambda seen: {"asked": seen.json()})
        fake.on("/v1/models", {"data": []})
        with ThreadingHTTPServer(("127.0.0.1", 0), cheat.handler(fake.url)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            port = server.server_address[1]
            reply = call(port, "POST", "/v1/completions", b'{"temperature": 1.0, "seed": 3}')
            assert json.loads(reply.body) == {"asked": {"temperature": 1.5, "seed": 3}}
            assert json.loads(call(port, "GET", "/v1/models", None).body) == {"data": []}
            server.shutdown()
    assert cheat.hotter(b"{") == b"{"
    assert json.loads(cheat.hotter(b'{"temperature": 0}')) == {"temperature": 0}

"""google_genai against a LiteLLM proxy in front of a real vLLM, the one server of this wire that runs anywhere.

The proxy is no part of this project's environment, as its packages clash with the engine's. These tests start it out
of a virtual environment of its own, and are left out where there is none:

    python -m venv .venv-gateway && .venv-gateway/bin/pip install 'litellm[proxy]==1.108.7'

LOGPROOF_TEST_GATEWAY names the URL of a proxy that runs already, whose key is KEY.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from logproof.errors import BadReply, ContextOverflow, MissingChannel, ModelNotFound, OutputContractError, StatusError
from logproof.ir.facts import Facts
from logproof.ir.message import Message, text_message
from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response
from logproof.ir.turn import to_message
from logproof.models.connect import Options, connect

PROGRAM = Path(__file__).parents[2] / ".venv-gateway" / "bin" / "litellm"
KEY = "logproof-local-key-0123456789abcdef"
USER = text_message("user", "What is 2+2? Answer shortly.")
CONFIG = """
model_list:
  - model_name: smollm2
    litellm_params: {{model: hosted_vllm/smollm2, api_base: "{engine}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""
LONGEST_START_S = 120


@pytest.fixture(scope="module")
def gateway_url(engine_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a LiteLLM proxy that serves `smollm2` of the engine."""
    given = os.environ.get("LOGPROOF_TEST_GATEWAY")
    if given:
        yield given.rstrip("/")
        return
    if not PROGRAM.exists():
        pytest.skip("no LiteLLM proxy: .venv-gateway holds none and LOGPROOF_TEST_GATEWAY names none")
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "config.yaml").write_text(CONFIG.format(engine=engine_url, key=KEY))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "DO_NOT_TRACK": "1",
    }
    command = [str(PROGRAM), "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **quiet}, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/health/liveliness", process, folder / "log")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + LONGEST_START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"the LiteLLM proxy did not start: {log.read_text()[-800:]}")


def ask(url: str, *requests: Request, key: str | None = KEY) -> list[Response]:
    """Send requests one after the other; the proxy tells nothing about itself, so nothing is probed."""

    async def run() -> list[Response]:
        options = Options(dialect="google_genai", model="smollm2", key=key, facts=Facts())
        async with connect(url, options) as connection:
            return [(await connection.client.call(r)).response for r in requests]

    return asyncio.run(run())


def chat(*messages: Message, **groups: msgspec.Struct) -> Request:
    sampling = Sampling(max_tokens=16, temperature=0.0)
    return msgspec.structs.replace(Request("smollm2", Input(messages=messages or (USER,)), sampling=sampling), **groups)


def test_plain_and_streamed_replies_are_equal(gateway_url: str) -> None:
    plain = chat(text_message("system", "Be brief."), USER)
    one, other = ask(gateway_url, plain, msgspec.structs.replace(plain, schedule=Schedule(stream=True)))
    first, second = (msgspec.structs.asdict(r.choices[0]) for r in (one, other))
    assert first == second
    assert one.usage == other.usage
    assert one.choices[0].text


def test_a_turn_goes_on(gateway_url: str) -> None:
    (first,) = ask(gateway_url, chat())
    (second,) = ask(gateway_url, chat(USER, to_message(first.choices[0]), text_message("user", "And 3+3?")))
    assert (second.usage.prompt or 0) > (first.usage.prompt or 0)


def test_a_stop_and_a_limit(gateway_url: str) -> None:
    stop = chat(sampling=Sampling(max_tokens=16, temperature=0.0, stop=("answer",)))
    stopped, cut = ask(gateway_url, stop, chat(sampling=Sampling(max_tokens=2, temperature=0.0)))
    assert "answer" not in stopped.choices[0].text
    assert (cut.choices[0].finish.reason, cut.choices[0].finish.raw) == ("length", "MAX_TOKENS")


def test_structured_output(gateway_url: str) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}},
        "required": ["name"],
        "additionalProperties": False,
    }
    sampling = Sampling(max_tokens=60, temperature=0.0)
    (response,) = ask(gateway_url, chat(sampling=sampling, output=Output(json_schema=schema)))
    assert isinstance(response.choices[0].parsed, dict)
    with pytest.raises(OutputContractError):
        ask(gateway_url, chat(output=Output(json_object=True)))


def test_what_the_gateway_drops_is_noticed(gateway_url: str) -> None:
    with pytest.raises(MissingChannel):
        ask(gateway_url, chat(scoring=Scoring(sampled=3)))
    with pytest.raises(BadReply, match="2 asked"):
        ask(gateway_url, chat(sampling=Sampling(max_tokens=4, n=2)))
    (seeded,) = ask(gateway_url, chat(sampling=Sampling(max_tokens=4, seed=7)))
    assert seeded.notes == ("unconfirmed, as a gateway may drop it: sampling.seed",)


def test_errors_are_typed(gateway_url: str) -> None:
    with pytest.raises(ContextOverflow):
        ask(gateway_url, chat(text_message("user", "word " * 2100)))
    with pytest.raises(ModelNotFound):
        ask(gateway_url, msgspec.structs.replace(chat(), model="nope"))
    with pytest.raises(StatusError):
        ask(gateway_url, chat(), key="wrong")

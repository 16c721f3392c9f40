"""Model Runner V2 through Triton's interpreter (0.3 s a token): enforcement, resumption, stops, modes, refusals.

The interpreter cannot run the grammar kernel; for top-k and top-p the shim puts vLLM's torch code in place of theirs.
The cache holds three blocks of 128 tokens and a step takes 64 tokens, so long prompts are prefilled in pieces and
requests are preempted.
"""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import plugin_wire as wire
import psutil
import pytest
from plugin_engine import PLUGIN, engine
from plugin_wire import PROMPT, TEXT, ask, get, ids_of, logprobs_of, post

pytestmark = pytest.mark.live
SHIM = Path(__file__).parent / "v2_shim"
NOISE = 1e-4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {**PLUGIN, "PYTHONPATH": str(SHIM), "VLLM_MQ_MAX_CHUNKS": "3"}
    small = ["--max-num-seqs", "8", "--max-model-len", "256", "--num-gpu-blocks-override", "4",
             "--max-num-batched-tokens", "64"]  # fmt: skip
    with engine(tmp_path_factory.mktemp("v2") / "log", environment, small) as url:
        yield url


def test_the_runner_is_v2_and_the_canary_passed(server: str) -> None:
    status = get(server, "/logproof/status")
    assert status["runner"] == "v2"
    assert status["ready"]
    assert "grammar_guard" in status["off"]
    assert status["canary"]["returned"][:4] == status["canary"]["enforced"]


def test_every_message_queue_has_the_ring_size(server: str) -> None:
    """16 and 24 MiB chunks, three of each, and a few bytes of flags."""
    assert get(server, "/logproof/status")["features"]["mq_max_chunks"] == 3
    sizes = [path.stat().st_size for path in Path("/dev/shm").glob("psm_*")]
    for chunk in (16, 24):
        assert any(0 < size - 3 * chunk * 2**20 < 4096 for size in sizes), sizes


def test_ids_come_back_with_the_models_logprobs(server: str) -> None:
    ids = [100, 2, 30000, 17, 45000, 0]
    reply = ask(server, TEXT, prompt=PROMPT, enforced_token_ids=ids, logprobs=1, return_token_ids=True, stop=["."])
    assert ids_of(reply) == ids
    assert reply["logproof"]["enforced"] == 6
    prompt = reply["choices"][0]["prompt_token_ids"]
    scored = ask(server, TEXT, prompt=[*prompt, *ids], max_tokens=1, prompt_logprobs=0)
    rows = scored["choices"][0]["prompt_logprobs"][len(prompt) :]
    expected = [row[str(i)]["logprob"] for row, i in zip(rows, ids, strict=True)]
    assert max(abs(a - b) for a, b in zip(logprobs_of(reply), expected, strict=True)) <= NOISE


def test_after_the_list_sampling_resumes_and_stops(server: str) -> None:
    reply = ask(
        server, TEXT, prompt=PROMPT, enforced_token_ids=[28, 30], temperature=0, max_tokens=5, return_token_ids=True
    )
    prompt = reply["choices"][0]["prompt_token_ids"]
    onwards = ask(server, TEXT, prompt=[*prompt, 28, 30], temperature=0, max_tokens=3, return_token_ids=True)
    assert ids_of(reply) == [28, 30, *ids_of(onwards)]
    ended = ask(server, TEXT, prompt=PROMPT, enforced_token_ids=[28, 2], max_tokens=5, return_token_ids=True)
    assert ids_of(ended) == [28, 2]
    assert ended["choices"][0]["finish_reason"] == "stop"


def test_modes_mix_in_one_batch(server: str) -> None:
    """Temperature 0.5 tells raw from processed; each row equals its own solo run."""
    body: dict[str, Any] = {"prompt": PROMPT, "enforced_token_ids": [28, 30, 33], "logprobs": 2, "temperature": 0.5}
    modes: list[dict[str, str]] = [{}, {"logprobs_mode": "raw_logprobs"}, {"logprobs_mode": "processed_logprobs"}]
    mixed = [logprobs_of(r) for r in wire.together(server, [(TEXT, {**body, **mode}) for mode in modes])]
    alone = logprobs_of(ask(server, TEXT, **body, **modes[2]))
    assert all(math.isclose(a, b, abs_tol=NOISE) for a, b in zip(mixed[0], mixed[1], strict=True))
    assert all(math.isclose(a, b, abs_tol=NOISE) for a, b in zip(mixed[2], alone, strict=True))
    assert max(abs(a - b) for a, b in zip(mixed[1], mixed[2], strict=True)) > 0.1


def test_top_k_and_top_p_in_mixed_modes(server: str) -> None:
    """Processed rows are distributions over what survived; raw rows do not see the masks; ids are sampled as stock."""
    body: dict[str, Any] = {"prompt": PROMPT, "logprobs": 6, "temperature": 0.8, "top_k": 4, "top_p": 0.95, "seed": 3,
                            "max_tokens": 3, "return_token_ids": True}  # fmt: skip
    plain, raw, processed = (
        ask(server, TEXT, **body, **more)
        for more in ({}, {"logprobs_mode": "raw_logprobs"}, {"logprobs_mode": "processed_logprobs"})
    )
    assert ids_of(plain) == ids_of(raw) == ids_of(processed)
    assert logprobs_of(plain) == logprobs_of(raw)
    for row in processed["choices"][0]["logprobs"]["top_logprobs"]:
        assert math.isclose(sum(math.exp(value) for value in row.values()), 1.0, abs_tol=1e-5)
    replay = ask(server, TEXT, **{**body, "seed": 4, "enforced_token_ids": ids_of(plain)})
    assert ids_of(replay) == ids_of(plain)
    assert max(abs(a - b) for a, b in zip(logprobs_of(replay), logprobs_of(plain), strict=True)) <= NOISE


def test_preempted_and_chunked_requests_replay_exactly(server: str) -> None:
    """Two prompts of 126 tokens outgrow their blocks in a cache of three; the engine counts the preemptions.

    The lists are long enough that the first request still holds its second block when the other one asks for its own.
    """
    before = preemptions(server)
    lists = [[100 + row, 2, 30000, 17, 45000, 0, 7, 9, 11] for row in range(2)]
    bodies = [
        {"prompt": [504 + row, *range(300, 425)], "enforced_token_ids": ids, "logprobs": 1, "return_token_ids": True}
        for row, ids in enumerate(lists)
    ]
    for reply, ids in zip(wire.together(server, [(TEXT, body) for body in bodies]), lists, strict=True):
        assert ids_of(reply) == ids
        assert all(math.isfinite(value) and value < 0 for value in logprobs_of(reply))
    assert preemptions(server) > before


def preemptions(server: str) -> float:
    with urllib.request.urlopen(f"{server}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_preemptions_total"))


def test_what_is_not_covered_is_refused_with_the_fix(server: str) -> None:
    status, reply = post(server, TEXT, prompt=PROMPT, enforced_token_ids=[5], structured_outputs={"regex": "[0-9]"})
    assert status == 400
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in reply["error"]["message"]
    assert post(server, TEXT, prompt=PROMPT, enforced_token_ids=[49152])[0] == 400


def test_the_rings_of_a_killed_server_end_with_its_engine_process(server: str) -> None:
    """The last test of this server: its first process is killed in the middle of a replay.

    vLLM leaves its engine process running; who kills a server must end that one too, as `logproof engine stop` does.
    """
    port = server.rpartition(":")[2]
    leader = next(one for one in psutil.process_iter(["cmdline"]) if port in (one.info["cmdline"] or ()))
    family = [leader, *leader.children(recursive=True)]
    rings = {path for path in Path("/dev/shm").glob("psm_*") if used_by(path, family)}
    assert rings
    body = {"model": "smollm2", "prompt": PROMPT, "enforced_token_ids": [28] * 100, "stream": True}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(server + TEXT, data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=300) as reply:
        assert reply.readline().startswith(b"data: {")
        leader.kill()
    for one in family[1:]:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    _, left = psutil.wait_procs(family, timeout=120)
    assert not left
    assert not [path for path in rings if path.exists()]


def used_by(path: Path, family: list[psutil.Process]) -> bool:
    return any(str(path) in Path(f"/proc/{one.pid}/maps").read_text() for one in family)

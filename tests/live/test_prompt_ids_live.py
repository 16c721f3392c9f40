"""Prompt ids made on a real engine: those that the engine itself ran for the same request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from logproof.client.connect import Options, connect
from logproof.http.exchange import WireRequest
from logproof.verify.artifact.known_request import MadePrompt
from logproof.verify.replay.prompt_ids import make_prompt
from logproof.verify.replay.prompt_source import CHAT, COMPLETIONS, GENERATE, MESSAGES, RESPONSES

SYSTEM = {"role": "system", "content": "You answer in one word. 🙂"}
USER = {"role": "user", "content": "用一句话介绍猫 🐈"}
TOLD = [SYSTEM, USER, {"role": "assistant", "content": "Cat."}, {"role": "user", "content": "And a dog?"}]
PARTS = {"role": "user", "content": [{"type": "text", "text": "Is water"}, {"type": "text", "text": " wet?"}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": (COMPLETIONS, {"prompt": "从前有一只小猫 🐈‍⬛, and it"}),
    "texts": (COMPLETIONS, {"prompt": ["One", "Two and"]}),
    "ids": (COMPLETIONS, {"prompt": [504, 2365, 3]}),
    "user": (CHAT, {"messages": [USER]}),
    "system": (CHAT, {"messages": [SYSTEM, USER]}),
    "turns": (CHAT, {"messages": TOLD}),
    "parts": (CHAT, {"messages": [PARTS]}),
    "arguments": (CHAT, {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}}),
}
VLLM_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "no_special": (COMPLETIONS, {"prompt": "Once", "add_special_tokens": False}),
    "continued": (
        CHAT,
        {
            "messages": [USER, {"role": "assistant", "content": "A cat"}],
            "add_generation_prompt": False,
            "continue_final_message": True,
        },
    ),
    "documents": (CHAT, {"messages": [USER], "documents": [{"title": "t", "text": "d"}]}),
}


async def both(url: str, path: str, body: dict[str, Any]) -> tuple[MadePrompt, dict[str, Any]]:
    """The prompt that the verifier makes of a request, and the engine's own reply to it."""
    async with connect(url, Options(texts=False)) as trusted:
        made = await make_prompt(trusted, path, {**body, "model": "theirs"})
        whole = json.dumps({**body, "model": trusted.model}).encode()
        reply = await trusted.client.sender.send(WireRequest(path=path, body=whole))
        return made, json.loads(reply.body)


@pytest.mark.parametrize("name", [*CALLS, *VLLM_CALLS])
def test_vllm_runs_the_prompt_that_is_made(engine_url: str, name: str) -> None:
    path, body = (CALLS | VLLM_CALLS)[name]
    compare(*asyncio.run(both(engine_url, path, {**body, "max_tokens": 1, "return_token_ids": True})))


def test_vllm_runs_the_prompt_that_is_made_of_tools(plugin_url: str) -> None:
    body = {"messages": [USER], "tools": TOOLS, "tool_choice": "auto", "max_tokens": 1, "return_token_ids": True}
    compare(*asyncio.run(both(plugin_url, CHAT, body)))


def compare(made: MadePrompt, reply: dict[str, Any]) -> None:
    per_choice = [choice.get("prompt_token_ids") for choice in reply["choices"]]
    ran = per_choice if per_choice[0] is not None else [reply["prompt_token_ids"]]
    assert made.reason is None
    assert [list(ids) for ids in made.prompts] == ran


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RESPONSES, {"input": USER["content"], "instructions": SYSTEM["content"], "max_output_tokens": 1}),
        (RESPONSES, {"input": TOLD[1:], "max_output_tokens": 1}),
        (MESSAGES, {"messages": TOLD[1:], "system": SYSTEM["content"], "max_tokens": 1}),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 1}),
    ],
)
def test_vllm_counts_as_many_where_it_tells_no_ids(engine_url: str, path: str, body: dict[str, Any]) -> None:
    made, reply = asyncio.run(both(engine_url, path, body))
    assert made.reason is None
    assert len(made.prompts[0]) == reply["usage"]["input_tokens"]


@pytest.mark.parametrize("name", [*(name for name, (path, _) in CALLS.items() if path == CHAT), "tools"])
def test_sglang_counts_as_many_as_are_made(sglang_url: str, name: str) -> None:
    path, body = (CALLS | {"tools": (CHAT, {"messages": [USER], "tools": TOOLS})})[name]
    made, reply = asyncio.run(both(sglang_url, path, {**body, "max_tokens": 1}))
    assert made.reason is None
    assert len(made.prompts[0]) == reply["usage"]["prompt_tokens"]


def test_sglang_runs_the_text_that_is_made(sglang_url: str) -> None:
    text = str(CALLS["text"][1]["prompt"])
    options = {"sampling_params": {"max_new_tokens": 1}, "return_prompt_token_ids": True}
    made, reply = asyncio.run(both(sglang_url, GENERATE, {"text": text, **options}))
    assert made.reason is None
    assert reply["meta_info"]["prompt_tokens"] == len(made.prompts[0])

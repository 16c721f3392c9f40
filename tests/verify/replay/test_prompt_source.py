"""What a prompt is made from, route by route, and everything that keeps it from being made."""

from __future__ import annotations

from typing import Any

import pytest

from logproof.errors import REDACTED
from logproof.verify.replay.prompt_source import (
    CHAT,
    COMPLETIONS,
    GENERATE,
    MAX_ID,
    MESSAGES,
    MOST_CHARACTERS,
    MOST_PROMPTS,
    RESPONSES,
    ChatPrompt,
    IdPrompts,
    TextPrompts,
    Unmakable,
    prompt_source,
)

USER = {"role": "user", "content": "Hi."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Hi."}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


@pytest.mark.parametrize(
    ("path", "body", "source"),
    [
        (COMPLETIONS, {"prompt": "a", "temperature": 1.0, "seed": 3}, TextPrompts(("a",))),
        (COMPLETIONS, {"prompt": ["a", "b"], "add_special_tokens": False}, TextPrompts(("a", "b"), False)),
        (COMPLETIONS, {"prompt": [1, 2]}, IdPrompts(((1, 2),))),
        (COMPLETIONS, {"prompt": [[1, 2], [0]]}, IdPrompts(((1, 2), (0,)))),
        (COMPLETIONS, {"prompt": "a", "suffix": None, "truncate_prompt_tokens": None}, TextPrompts(("a",))),
        (GENERATE, {"text": "a", "sampling_params": {"max_new_tokens": 3}}, TextPrompts(("a",))),
        (GENERATE, {"input_ids": [5], "text": "a"}, IdPrompts(((5,),))),
        (CHAT, {"messages": [USER], "max_tokens": 3}, ChatPrompt([USER])),
        (CHAT, {"messages": [PARTS], "tools": []}, ChatPrompt([PARTS])),
        (CHAT, {"messages": [USER], "tools": TOOLS, "tool_choice": "auto"}, ChatPrompt([USER], {"tools": TOOLS})),
        (
            CHAT,
            {"messages": [USER], "add_generation_prompt": False, "continue_final_message": True},
            ChatPrompt([USER], {"add_generation_prompt": False, "continue_final_message": True}),
        ),
        (
            CHAT,
            {"messages": [USER], "chat_template_kwargs": {"a": 1}, "documents": [{"text": "d"}]},
            ChatPrompt([USER], {"documents": [{"text": "d"}], "chat_template_kwargs": {"a": 1}}),
        ),
        (RESPONSES, {"input": "Hi.", "text": {"format": {"type": "text"}}}, ChatPrompt([USER])),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi."}]}], "instructions": "S"},
            ChatPrompt([{"role": "system", "content": "S"}, USER]),
        ),
        (
            MESSAGES,
            {"messages": [PARTS], "system": [{"type": "text", "text": "S"}], "max_tokens": 3},
            ChatPrompt([{"role": "system", "content": "S"}, USER]),
        ),
    ],
)
def test_a_prompt_has_a_source(path: str, body: dict[str, Any], source: object) -> None:
    assert prompt_source(path, body) == source


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1beta/models/m:generateContent", {"contents": []}),
        (COMPLETIONS, None),
        (COMPLETIONS, []),
        (COMPLETIONS, {}),
        (COMPLETIONS, {"prompt": ""}),
        (COMPLETIONS, {"prompt": []}),
        (COMPLETIONS, {"prompt": [[]]}),
        (COMPLETIONS, {"prompt": [1, "a"]}),
        (COMPLETIONS, {"prompt": [-1]}),
        (COMPLETIONS, {"prompt": [MAX_ID + 1]}),
        (COMPLETIONS, {"prompt": [True]}),
        (COMPLETIONS, {"prompt": [1.0]}),
        (COMPLETIONS, {"prompt": {"a": 1}}),
        (COMPLETIONS, {"prompt": ["a"] * (MOST_PROMPTS + 1)}),
        (COMPLETIONS, {"prompt": "a" * (MOST_CHARACTERS + 1)}),
        (COMPLETIONS, {"prompt": f"my key is {REDACTED}"}),
        (COMPLETIONS, {"prompt": "a", "add_special_tokens": "yes"}),
        (COMPLETIONS, {"prompt": "a", "truncate_prompt_tokens": 0}),
        (COMPLETIONS, {"prompt": "a", "truncate_prompt_tokens": 4}),
        (COMPLETIONS, {"prompt": "a", "prompt_embeds": "AAAA"}),
        (COMPLETIONS, {"prompt": "a", "something_else": 1}),
        (GENERATE, {"text": "a", "image_data": "x"}),
        (CHAT, {}),
        (CHAT, {"messages": []}),
        (CHAT, {"messages": "Hi."}),
        (CHAT, {"messages": [{"content": "Hi."}]}),
        (CHAT, {"messages": [{"role": "user", "content": 3}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]}),
        (CHAT, {"messages": [USER], "tools": TOOLS, "tool_choice": "none"}),
        (CHAT, {"messages": [USER], "tools": TOOLS, "tool_choice": {"type": "function"}}),
        (CHAT, {"messages": [USER], "reasoning_effort": "high"}),
        (CHAT, {"messages": [USER], "chat_template": "{{ messages }}"}),
        (CHAT, {"messages": [USER], "input_ids": [1]}),
        (CHAT, {"messages": [{"role": "user", "content": REDACTED}]}),
        (RESPONSES, {"input": "Hi.", "previous_response_id": "r"}),
        (RESPONSES, {"input": "Hi.", "truncation": "auto"}),
        (RESPONSES, {"input": "Hi.", "tools": TOOLS}),
        (RESPONSES, {"input": "Hi.", "instructions": ["S"]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c", "output": "o"}]}),
        (RESPONSES, {"input": [USER, {"role": "assistant", "content": "Yes"}]}),
        (RESPONSES, {"input": []}),
        (MESSAGES, {"messages": [USER], "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        (MESSAGES, {"messages": [USER], "system": "x-anthropic-billing-header: 1"}),
        (MESSAGES, {"messages": [USER], "thinking": {"type": "enabled"}}),
        (MESSAGES, {"messages": [{"role": "system", "content": "S"}, USER]}),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    ],
)
def test_what_is_not_certain_is_not_made(path: str, body: object) -> None:
    source = prompt_source(path, body)
    assert isinstance(source, Unmakable)
    assert source.reason


def test_fields_that_change_no_prompt_do_no_harm() -> None:
    body = {"messages": [USER], "temperature": 0.5, "top_logprobs": 3, "metadata": {"a": "b"}, "user": "u", "n": 2}
    assert prompt_source(CHAT, body) == ChatPrompt([USER])

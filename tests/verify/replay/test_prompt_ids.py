"""Prompt ids on a trusted engine: what is asked of it, and what its failures become."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.server import FakeServer, Reply
from logproof.verify.artifact.known_request import MadePrompt
from logproof.verify.replay.prompt_ids import IN_REQUEST, make_prompt, stated_prompt
from logproof.verify.replay.prompt_source import CHAT, COMPLETIONS
from verify.parts import run
from verify.tiny import Tiny, facts, ids_of, open_tiny, rendered, serve

USER = {"role": "user", "content": "Hi."}


async def made(fake: FakeServer, path: str, body: dict[str, Any], **known: object) -> MadePrompt:
    async with open_tiny(fake, facts(**known)) as trusted:
        return await make_prompt(trusted, path, body)


def test_a_text_is_asked_under_the_trusted_engines_own_name(fake: FakeServer) -> None:
    serve(fake, Tiny())
    answer = run(made(fake, COMPLETIONS, {"model": "theirs", "prompt": ["ab", "c"], "add_special_tokens": False}))
    assert answer.prompts == (tuple(ids_of("ab")), tuple(ids_of("c")))
    assert (answer.reason, answer.by) == (None, fake.url)
    asked = {"model": "tiny", "prompt": "ab", "add_special_tokens": False}
    assert [seen.json() for seen in fake.seen] == [asked, {**asked, "prompt": "c"}]


def test_a_chat_is_asked_with_its_templates_arguments(fake: FakeServer) -> None:
    serve(fake, Tiny())
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"messages": [USER], "tools": tools, "documents": [{"text": "d"}], "chat_template_kwargs": {"a": 1}}
    answer = run(made(fake, CHAT, {"model": "theirs", "temperature": 0.5, **body}))
    assert answer.prompts == (tuple(ids_of(rendered([USER]))),)
    arguments = {"a": 1, "documents": [{"text": "d"}]}
    asked = {"model": "tiny", "messages": [USER], "tools": tools, "chat_template_kwargs": arguments}
    assert fake.seen[0].json() == asked


def test_sglang_is_asked_only_for_what_its_chats_take(fake: FakeServer) -> None:
    serve(fake, Tiny())
    answer = run(made(fake, CHAT, {"messages": [USER], "chat_template_kwargs": {"a": 1}}, engine="sglang"))
    assert answer.prompts
    for name, value in (("documents", [{"text": "d"}]), ("add_generation_prompt", False)):
        answer = run(made(fake, CHAT, {"messages": [USER], name: value}, engine="sglang"))
        assert answer.reason == f"{name} is no field of the trusted engine's chats"
    assert len(fake.seen) == 1


def test_ids_in_the_request_ask_nobody(fake: FakeServer) -> None:
    body = {"prompt": [3, 4]}
    wanted = MadePrompt(prompts=((3, 4),), by=IN_REQUEST)
    assert run(made(fake, COMPLETIONS, body)) == stated_prompt(COMPLETIONS, body) == wanted
    assert fake.seen == []
    assert stated_prompt(COMPLETIONS, {"prompt": "a"}).reason == "no engine was asked"
    assert "suffix" in (stated_prompt(COMPLETIONS, {"prompt": "a", "suffix": "b"}).reason or "")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, json={"error": {"message": "no"}}),
        Reply(401, json={"error": {"message": "key"}}),
        Reply(500, json={"error": {"message": "no"}}),
        Reply(drop=True),
        Reply(body="no JSON"),
        Reply(json={"tokens": []}),
        Reply(json={"tokens": None}),
        Reply(json={"tokens": [1.5]}),
        Reply(json={"tokens": [-1]}),
        Reply(json={"tokens": [2**31]}),
        Reply(json={"tokens": [[1], [2]]}),
        Reply(json={"count": 3}),
        Reply(json=[1, 2]),
    ],
)
def test_an_engine_that_fails_is_a_reason_and_no_error(fake: FakeServer, reply: Reply) -> None:
    serve(fake, Tiny())
    fake.on("/tokenize", reply)
    answer = run(made(fake, COMPLETIONS, {"prompt": "a"}))
    assert answer.prompts == ()
    assert (answer.reason or "").startswith("the trusted engine did not tokenise it: ")


def test_an_engine_of_an_unknown_kind_is_not_asked(fake: FakeServer) -> None:
    answer = run(made(fake, COMPLETIONS, {"prompt": "a"}, engine=None))
    assert answer.reason == "the trusted engine is not known to tokenise as it generates"
    assert fake.seen == []

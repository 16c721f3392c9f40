"""What a sample must keep to: its prompt fits the context, and every reply answers the prompt that was sent.

Ids of prompts come from the engine's own tokenizer, where there is one; without it only what a reply says of
itself can be held against it.
"""

from __future__ import annotations

from typing import Protocol

from logproof.errors import BadReply, ContextOverflow
from logproof.eval.plan.jobs import Job
from logproof.eval.plan.method import max_tokens
from logproof.eval.score.outcome import Contexts
from logproof.eval.tasks.task import GenItem, Item, PplItem
from logproof.ir.request import Request
from logproof.ir.response import Response


class PromptEncoder(Protocol):
    """The part of a tokenizer that is needed here."""

    async def encode(self, text: str) -> tuple[int, ...]: ...


async def contexts(item: Item, job: Job, tokenizer: PromptEncoder | None, room: int | None) -> Contexts:
    """Ids of an item's contexts alone. room: tokens of the model's context.

    Raises ContextOverflow for a prompt that cannot fit, before it is sent.
    """
    if tokenizer is None:
        return Contexts()
    if isinstance(item, PplItem):
        context = await tokenizer.encode(item.context)
        _refuse_overflow(len(context), 1, room)
        wanted = job.plan.settings.uncond and item.neutral is not None
        return Contexts(context, await tokenizer.encode(item.neutral or "") if wanted else None)
    if isinstance(item, GenItem) and job.plan.method.form == "text":
        _refuse_overflow(len(await tokenizer.encode(item.prompt)), max_tokens(item, job.plan.settings), room)
    return Contexts()


def _refuse_overflow(prompt: int, completion: int, room: int | None) -> None:
    if room is not None and prompt + completion > room:
        raise ContextOverflow(
            400, f"not sent: {prompt} tokens of prompt and {completion} of completion, the context has {room}"
        )


def check_room(item: Item, job: Job, reply: Response, room: int | None) -> None:
    """Some servers shorten a completion to what the context leaves, without a word. Raises ContextOverflow."""
    usage = reply.usage
    if room is None or not isinstance(item, GenItem) or usage.prompt is None or usage.completion is None:
        return
    cut = usage.completion < max_tokens(item, job.plan.settings) and usage.prompt + usage.completion >= room
    if cut and reply.choices[0].finish.reason == "length":
        raise ContextOverflow(400, f"the completion was cut at {usage.completion} tokens by the context of {room}")


async def check_prompt(request: Request, reply: Response, tokenizer: PromptEncoder | None) -> None:
    """Raise BadReply where prompt ids that nothing scores are not those of the text that was sent.

    The client has held scored ones against the text (client/check_prompt_ids.py). Gateways do hand out the reply of
    another request.
    """
    text, ids = request.input.text, reply.prompt_ids
    if tokenizer is None or request.scoring.prompt is not None or text is None or ids is None:
        return
    if tuple(ids.tolist()) != await tokenizer.encode(text):
        raise BadReply(
            "the reply's prompt ids are not those of the prompt that was sent: it answers another request",
            hint="see which server or gateway mixes replies; or the tokenizer that was named is not the engine's",
        )

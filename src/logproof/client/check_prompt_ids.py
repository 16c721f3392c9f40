"""Whether the prompt ids of a reply are those of the text that was sent: a gateway may mix replies up."""

from __future__ import annotations

from logproof.client.tokenizer import Tokenizer
from logproof.errors import BadReply
from logproof.ir.request import Request
from logproof.ir.response import Ids, Response, Tokens


async def check_prompt_ids(response: Response, request: Request, tokenizer: Tokenizer) -> None:
    """Refuse prompt ids that are not those of the text that was sent.

    Held against the tokenizer where it knows the ids without a request, and where a scored prompt's texts, the first
    by its id, do not join to the text; texts that join prove the text alone. Raises BadReply, and what the tokenizer
    raises.
    """
    text, prompt = request.input.text, response.prompt
    ids = response.prompt_ids if prompt is None or prompt.ids is None else prompt.ids
    if text is None or ids is None or request.input.suffix is not None or "add_special_tokens" in request.options:
        return
    own = tokenizer.known(text)
    if own is None and prompt is not None and await _unjoined(prompt, ids, tokenizer):
        own = await tokenizer.encode(text)
    if own is not None and ids.tolist() != list(own):
        raise BadReply(
            "these are not the tokens of the prompt that was sent: it answers another request",
            path="/prompt_token_ids",
            hint="see which server or gateway mixes replies; or the tokenizer that was named is not the engine's",
        )


async def _unjoined(prompt: Tokens, ids: Ids, tokenizer: Tokenizer) -> bool:
    """Whether the first text is missing, or is what the others left of the prompt and not that of its id.

    An empty one belongs to a token that stands before the text. Without texts there is nothing to go by.
    """
    if not prompt.texts:
        return False
    first = prompt.texts[0]
    return first is None or (first != "" and first != await tokenizer.text(int(ids[0])))

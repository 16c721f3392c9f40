"""How a scored prompt begins: with the token that --bos names, and with none twice. Pure."""

from __future__ import annotations

from logproof.errors import BadReply
from logproof.ir.response import Response


def doubled_start(reply: Response) -> bool:
    """Whether a prompt begins with one token twice, as it does where text and tokenizer both add its beginning."""
    ids = reply.prompt_ids
    return ids is not None and len(ids) > 1 and bool(ids[0] == ids[1])


def check_bos(bos: int, part: str, reply: Response) -> None:
    """Raise BadReply unless the prompt's ids are known and begin with `bos` exactly once."""
    if reply.prompt_ids is None:
        raise BadReply(f"{part}: the reply has no prompt ids, so nothing shows whether it begins with id {bos}")
    begins = reply.prompt_ids[:2].tolist()
    if begins[:1] != [bos]:
        raise BadReply(f"{part}: the prompt begins with id {begins[0] if begins else None}, not with {bos}")
    if begins == [bos, bos]:
        raise BadReply(f"{part}: the prompt begins with id {bos} twice: text and tokenizer both add it")

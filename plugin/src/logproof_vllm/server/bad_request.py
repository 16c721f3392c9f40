"""Makes an HTTP 400 of a :class:`Refused`, in the server's own error form.

Two ways lead there: inside vLLM its own validation error does it, on every route; the middleware answers itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from logproof_vllm.refusal import Refused


@contextmanager
def raised_to_server() -> Iterator[None]:
    """Turn a :class:`Refused` of the body into the error that vLLM's routes answer with a 400."""
    try:
        yield
    except Refused as refused:
        raise validation_error(refused) from refused


def validation_error(refused: Refused) -> Exception:
    """vLLM's own validation error with the same message and parameter."""
    from vllm.exceptions import VLLMValidationError

    error: Exception = VLLMValidationError(str(refused), parameter=refused.parameter)
    return error


def error_body(refused: Refused) -> bytes:
    """The JSON of vLLM's ``ErrorResponse``, for a body that never reaches a route."""
    error = {"message": str(refused), "type": "BadRequestError", "param": refused.parameter, "code": 400}
    return json.dumps({"error": error}).encode()

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from eval.toy import ToyEngine, connection, ready, run
from logproof.dialects.call import Call
from logproof.errors import InvalidRequest, StoreError
from logproof.eval.score.stored_calls import call_record, failed_record, request_of, response_of
from logproof.http.exchange import WireReply, WireRequest
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.ir.response import Choice, Finish, Labels, Response, Tokens, TopK, Usage
from logproof.store.records import CallRecord, RunProvenance
from logproof.store.run_store import RunStore

TOP = TopK(
    offsets=np.array([0, 2, 3]),
    logprobs=np.array([-0.5, -math.inf, -1.0]),
    ids=np.array([4, 5, 6]),
    ranks=np.array([1, 2, 1]),
    texts=("a", None, ""),
)
TOKENS = Tokens(np.array([math.nan, -1.5]), "raw", np.array([7, 8]), np.array([0, 1]), (None, " é"), TOP)
RESPONSE = Response(
    choices=(
        Choice(0, "text", Finish("stop", "stop", 5), np.array([7, 8]), TOKENS),
        Choice(1, "", Finish("length", None), labels=Labels(np.array([1, 2]), np.array([[-1.0, -2.0]]), "raw")),
    ),
    usage=Usage(prompt=2, completion=3),
    prompt=TOKENS,
    prompt_ids=np.array([7, 8]),
    model="m",
    fingerprint="fp",
    notes=("a note",),
)
REQUEST = Request("m", Input(text="Q"), Sampling(max_tokens=1, logit_bias={5: 1.0}), Scoring(prompt=0, label_ids=(1,)))


def call(response: Response) -> Call:
    return Call(REQUEST, "d", (), response, 0.5, 2, WireReply(200, (), b""), WireRequest("/"), ("mark",))


def through_a_store(path: Path, record: CallRecord) -> CallRecord:
    given = RunProvenance(config={}, model={}, tasks={})
    with RunStore.create(path / "run", given) as store:
        store.put_call(record)
        store.flush()
        return next(store.calls())


def test_request_and_response_come_back_from_a_store(tmp_path: Path) -> None:
    record = through_a_store(tmp_path, call_record("k", "s", "option 0", call(RESPONSE), "http://x"))
    assert request_of(record) == REQUEST
    back = response_of(record)
    assert plain(back) == plain(RESPONSE)
    assert (record.attempts, record.seconds, record.reply_digest) == (2, 0.5, hashlib.sha256(b"").hexdigest())


def plain(value: Any) -> Any:
    """Arrays and infinities as texts, so that two responses can be compared."""
    if isinstance(value, np.ndarray):
        return [repr(v) for v in value.tolist()]
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def test_every_reply_of_a_run_survives(tmp_path: Path) -> None:
    conn = connection(ToyEngine())
    _, sink = run(conn, ready(conn, "arc_easy_ppl", "mmlu_clp", "gsm8k_gen", limit="1"))
    for record in sink.calls:
        live = response_of(msgspec.structs.replace(record, response=msgspec.to_builtins(record.response)))
        assert live.usage.prompt is not None


def test_failures_keep_class_and_message() -> None:
    record = failed_record("k", "s", "text", REQUEST, "d", InvalidRequest("bad"), "http://x")
    assert (record.status, record.error_type, record.error, record.attempts) == ("failed", "InvalidRequest", "bad", 0)


@pytest.mark.parametrize("response", [None, {"choices": 1}, {"choices": [], "usage": {}, "prompt": "raw"}])
def test_damaged_replies_are_refused(response: object) -> None:
    record = CallRecord(key="k", sample_key="s", dialect="d", status="ok", response=response, request={"model": 1})
    with pytest.raises(StoreError, match="damaged"):
        response_of(record)
    with pytest.raises(StoreError, match="damaged"):
        request_of(record)

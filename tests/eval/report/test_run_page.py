from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from eval.toy import ToyEngine, connection, fault, stored
from logproof.eval.report import run_page
from logproof.eval.report.run_page import page, write
from logproof.ir.response import Tokens
from logproof.store.run_store import RunStore

NASTY = '<script>alert("x")</script>&\''


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Tags:
    found = Tags()
    found.feed(html)
    assert found.open == []
    return found


def test_a_page_shows_tokens_of_every_kind_of_task(tmp_path: Path) -> None:
    finished = stored(
        tmp_path / "run",
        connection(ToyEngine()),
        "arc_easy_ppl",
        "mmlu_clp",
        "gsm8k_gen",
        limit="2",
        shots=0,
        uncond=True,
    )
    with RunStore.read(tmp_path / "run") as store:
        made = page(finished.report, store, prompts=1)
        write(finished.report, store, tmp_path / "page.html", prompts=1)
        assert page(finished.report, store, prompts=0).count("<h3>") == 0
    assert (tmp_path / "page.html").read_text() == made
    found = read(made)
    assert "option 0" in found.text
    assert "(the right one)" in found.text
    assert "neutral 0" in found.text
    assert "The answer is 7." in found.text
    assert made.count("<h3>") == 3
    assert "logprob -" in made
    assert 'class="span"' in made
    assert not re.search(r"https?://(?!127\.0\.0\.1)|<script|<link|<img|@import|url\(", made)


def test_texts_from_outside_are_escaped(tmp_path: Path) -> None:
    engine = ToyEngine(generate=lambda prompt: f" {NASTY}")

    def behave(body: dict[str, Any]) -> dict[str, Any]:
        return {**engine.answer(body), "model": NASTY}

    engine.behave = behave
    finished = stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="1", shots=0)
    report = msgspec.structs.replace(finished.report, model=NASTY, endpoints=(NASTY,), suspect=(NASTY,))
    with RunStore.read(tmp_path / "run") as store:
        made = page(report, store)
    found = read(made)
    assert "script" not in found.tags
    assert NASTY in found.text
    assert "<script" not in made


def test_failed_samples_show_their_reason(tmp_path: Path) -> None:
    finished = stored(tmp_path / "run", connection(ToyEngine(lambda body: fault())), "gsm8k_gen", limit="1", shots=0)
    with RunStore.read(tmp_path / "run") as store:
        assert "engine fell over" in read(page(finished.report, store)).text


def test_text_without_tokens_and_long_prompts(tmp_path: Path, monkeypatch: Any) -> None:
    finished = stored(tmp_path / "run", connection(ToyEngine()), "gsm8k_gen", "arc_easy_ppl", limit="1", shots=0)
    monkeypatch.setattr(run_page, "MAX_TOKENS", 5)
    with RunStore.read(tmp_path / "run") as store:
        assert re.search(r"… \d+ more", page(finished.report, store))
        calls = store.calls

        def bare(key: str) -> Any:
            for call in calls(key):
                response: Any = call.response
                choices = [{**c, "meaning": None} for c in response["choices"]]
                yield msgspec.structs.replace(call, response={**response, "choices": choices})

        store.calls = bare
        assert "The answer is 7." in read(page(finished.report, store)).text


def test_tokens_without_texts_or_values() -> None:
    shown: Any = run_page._tokens(Tokens(np.array([np.nan, -np.inf, 0.0]), "raw", np.array([5, 6, 7])), None)["tokens"]
    assert [t["text"] for t in shown] == ["[5]", "[6]", "[7]"]
    assert shown[0]["figures"] == "id 5, logprob not scored"
    assert shown[1]["figures"] == "id 6, logprob -inf"
    assert [t["shade"] for t in shown] == ["#e8e8ee", "rgb(255,105,95)", "rgb(255,255,255)"]
    texts: Any = run_page._tokens(Tokens(np.array([-1.0]), "raw", None, None, ("x",)), 0)["tokens"]
    assert [t["figures"] for t in texts] == ["logprob -1.0000"]


def test_an_impossible_label_is_shown_as_such() -> None:
    assert run_page._figure(None) == "-inf"

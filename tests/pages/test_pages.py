"""Pages: whatever a template is given is escaped, and what it lacks is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from logproof import pages
from logproof.pages import render

NASTY = '<script>alert("x")</script>&\''
TEMPLATES = Path(pages.__file__).parent / "templates"
TOKENS = {"tokens": [{"text": NASTY, "figures": NASTY, "shade": NASTY, "scored": True}], "more": 0}
RUN: dict[str, Any] = {
    "title": NASTY,
    "model": NASTY,
    "dialect": NASTY,
    "endpoints": NASTY,
    "versions": NASTY,
    "suspect": [NASTY],
    "rows": [[NASTY]],
    "denominators": NASTY,
    "tasks": [
        {
            "name": NASTY,
            "samples": [
                {
                    "row": NASTY,
                    "gold": NASTY,
                    "scores": NASTY,
                    "replies": [
                        {
                            "part": NASTY,
                            "right": True,
                            "prompt": prompt,
                            "prompt_text": NASTY,
                            "choices": [{"tokens": TOKENS, "text": ""}, {"tokens": None, "text": NASTY}],
                            "labels": [(NASTY, NASTY)],
                        }
                        for prompt in (TOKENS, None)
                    ],
                }
            ],
        }
    ],
}


def test_every_value_is_escaped_also_in_attributes() -> None:
    page = render("run.html", **RUN)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&amp;&#39;") == 30


def test_a_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="model"):
        render("run.html", **{k: v for k, v in RUN.items() if k != "model"})


def test_tokens_stand_side_by_side() -> None:
    page = render("run.html", **{**RUN, "tasks": []})
    assert "<h2>" not in page
    pair = {**TOKENS, "tokens": [{**TOKENS["tokens"][0], "text": t} for t in ("a", " b")], "more": 3}  # type: ignore[index]
    reply = {"part": "", "right": False, "prompt": pair, "prompt_text": "", "choices": [], "labels": []}
    sample = {"row": "", "gold": "", "scores": "", "replies": [reply]}
    page = render("run.html", **{**RUN, "tasks": [{"name": "", "samples": [sample]}]})
    inside = page.partition('<div class="tokens">')[2].partition("</div>")[0]
    assert inside.startswith("<span")
    assert "</span><span" in inside
    assert inside.endswith("</span> … 3 more")


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda p: p.name)
def test_a_page_loads_nothing_and_runs_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"<script|<link|<img|@import|url\(|http|\son\w+=|\|\s*safe|autoescape", text) == []

"""The generated reference is the one that the code gives."""

from __future__ import annotations

import itertools
import re
import shlex

import pytest
import typer.main

from docs_script import MAKE_DOCS

PAGES = ["dialects.md", "commands.md", "errors.md", "artifact.md", "artifact.schema.json", "../verification.md"]


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name):
    assert (MAKE_DOCS.FOLDER / name).read_text(encoding="utf-8") == MAKE_DOCS.pages()[name], "run make docs"


GUIDES = sorted((MAKE_DOCS.FOLDER.parent / "guides").glob("*.md"))


def _commands(text):
    """The `logproof` commands of a page's shell blocks, as lists of words."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("logproof "):
                words = shlex.split(line, comments=True)
                yield list(itertools.takewhile(lambda w: w not in ("||", "&&", "&", ">", "|", "--"), words))[1:]


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: p.name)
def test_commands_of_guides_exist_with_their_options(page):
    for words in _commands(page.read_text(encoding="utf-8")):
        command = typer.main.get_command(MAKE_DOCS.app)
        while getattr(command, "commands", None):
            command, words = command.commands[words[0]], words[1:]
        known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        assert {w.partition("=")[0] for w in words if w.startswith("-") and w != "-"} <= known | {"--help"}, words

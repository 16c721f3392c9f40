"""Writes docs/reference from the code: dialects, leaves, commands and exit codes.

python scripts/make_docs.py           write
python scripts/make_docs.py --check   exit 1 where a page differs from the code
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer.main

import logproof.errors
from logproof.cli.dialects import summary
from logproof.cli.main import app
from logproof.models.capabilities import CAPABILITIES
from logproof.models.dialects import BUILT_IN, get_dialect
from logproof.models.matrix import Cell, capability_matrix, leaf_matrix

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made by `make docs` from the code; edit the code. -->\n"


def pages() -> dict[str, str]:
    """{file name: text} of every generated page."""
    return {"dialects.md": dialects_page(), "commands.md": commands_page(), "errors.md": errors_page()}


def dialects_page() -> str:
    dialects = [get_dialect(i) for i in sorted(BUILT_IN)]
    ids = [d.id for d in dialects]
    capabilities = capability_matrix(dialects)
    leaves = leaf_matrix(dialects)
    parts = [
        MADE + "# Dialects",
        "What each wire can do at an endpoint of which everything is known and on. `logproof dialects NAME` shows"
        " the reasons; a probe of your endpoint narrows it.",
        "## Capabilities",
        table(["capability", "meaning", *ids], capability_rows(ids, capabilities)),
        "## Leaves",
        "sent: the leaf reaches the wire; no-op: leaving it out is faithful; -: refused before anything is sent;"
        " by value: some values are refused.",
        table(["leaf", *ids], ([f"`{leaf}`", *(summary(row[i]) for i in ids)] for leaf, row in leaves.items())),
        "## Channels",
        *(f"### {d.id}\n\n" + table(["channel", "guarantee"], [list(c) for c in d.channels.items()]) for d in dialects),
        "## Why a leaf is refused",
        *(f"### {i}\n\n" + table(["leaf", "value", "reason"], refusals(i, leaves)) for i in ids),
    ]
    return "\n\n".join(parts) + "\n"


def capability_rows(ids: Sequence[str], matrix: dict[str, dict[str, str | None]]) -> Iterator[list[str]]:
    for key, row in matrix.items():
        yield [f"`{key}`", CAPABILITIES[key].meaning, *("yes" if row[i] is None else "-" for i in ids)]


def refusals(dialect: str, matrix: dict[str, dict[str, tuple[Cell, ...]]]) -> Iterator[list[str]]:
    for leaf, row in matrix.items():
        cells = [c for c in row[dialect] if c.kind in ("refused", "invalid")]
        if len({c.detail for c in cells}) == 1 and len(cells) == len(row[dialect]):
            cells = cells[:1]
        for cell in cells:
            shown = "any" if len(cells) == 1 and len(row[dialect]) == len(cells) else f"`{str(cell.value)[:40]}`"
            yield [f"`{leaf}`", shown, cell.detail]


def commands_page() -> str:
    group = typer.main.get_command(app)
    parts = [MADE + "# Commands"]
    parts += list(command_sections("logproof", group))
    return "\n\n".join(parts) + "\n"


def command_sections(path: str, command: object) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children:
        for name in sorted(children):
            yield from command_sections(f"{path} {name}", children[name])
        return
    help_text = inspect.cleandoc(str(getattr(command, "help", "") or ""))
    yield f"## {path}\n\n{help_text}\n\n" + table(["argument", "default", "meaning"], parameter_rows(command))


def parameter_rows(command: object) -> Iterator[list[str]]:
    for parameter in getattr(command, "params", []):
        if parameter.name == "help":
            continue
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        shown = names if names.startswith("-") else (parameter.metavar or parameter.name.upper())
        default = parameter.default
        plain = "" if default in (None, False, ()) or callable(default) else f"`{default}`"
        yield [f"`{shown}`", plain, getattr(parameter, "help", None) or ""]


def errors_page() -> str:
    return f"{MADE}# Errors and exit codes\n\n```text\n{inspect.cleandoc(logproof.errors.__doc__ or '')}\n```\n"


def table(head: Sequence[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def main(args: Sequence[str]) -> int:
    check = "--check" in args
    stale = [name for name, text in pages().items() if not same(FOLDER / name, text, write=not check)]
    for name in stale:
        print(f"docs/reference/{name} {'is stale: run make docs' if check else 'written'}")
    return 1 if check and stale else 0


def same(path: Path, text: str, *, write: bool) -> bool:
    found = path.read_text(encoding="utf-8") if path.exists() else None
    if found != text and write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return found == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

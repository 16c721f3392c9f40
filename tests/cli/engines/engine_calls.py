"""The `engine` commands as the tests call them."""

from __future__ import annotations

import json

from click.testing import Result
from typer.testing import CliRunner

from logproof.cli.engines.engine import app


def run_engine(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def states() -> dict[str, str]:
    return {row["name"]: row["state"] for row in json.loads(run_engine("list", "--json").stdout)}

from __future__ import annotations

import typer
from typer.testing import CliRunner, Result

from logproof.cli.evaluate.export import export
from logproof.cli.evaluate.runs import runs
from logproof.cli.evaluate.show import show

app = typer.Typer()
for command in (runs, show, export):
    app.command()(command)


def invoke(*args: object) -> Result:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result

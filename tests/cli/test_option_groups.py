"""Option groups: a record's fields are options of the command, in the record's place."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import typer
from typer.testing import CliRunner

from logproof.cli.option_groups import OptionGroup, spread


@dataclass(frozen=True)
class Size(OptionGroup):
    width: Annotated[int, typer.Option("--width", help="Metres.")] = 1
    tags: Annotated[list[str] | None, typer.Option("--tag")] = None


@spread
def measure(name: Annotated[str, typer.Argument()], size: Size, loud: bool = False) -> None:
    """Measure a thing."""
    typer.echo(f"{name} {size} {loud}")


def test_fields_become_options_in_the_place_of_their_group() -> None:
    assert list(signature(measure).parameters) == ["name", "width", "tags", "loud"]
    assert measure.__doc__ == "Measure a thing."


def test_values_and_defaults_arrive_in_the_record() -> None:
    app = typer.Typer()
    app.command()(measure)
    run = CliRunner().invoke
    assert run(app, ["it"]).stdout == "it Size(width=1, tags=None) False\n"
    given = run(app, ["it", "--width", "3", "--tag", "a", "--tag", "b", "--loud"])
    assert given.stdout == "it Size(width=3, tags=['a', 'b']) True\n"
    assert "Metres." in run(app, ["--help"]).stdout

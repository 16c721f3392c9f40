"""Groups of options: several commands take the same ones, so each group is a record that is written once.

@dataclass(frozen=True)
class KeyOptions(OptionGroup):
    key_env: KeyEnv = None

@spread
def probe(url: ..., key: KeyOptions = KeyOptions()) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")


class OptionGroup:
    """Base of records whose fields are options, each annotated as a command's parameter and with a default."""


def spread(command: Callable[..., R]) -> Callable[..., R]:
    """A command that takes the fields of its option groups one by one, in the group's place, as typer reads them."""
    parameters: list[Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            parameters += _options(kind)
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> R:
        for name, group in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in _options(group)})
        return command(**values)

    annotations = {p.name: p.annotation for p in parameters}
    run.__annotations__ = {**annotations, "return": signature(command, eval_str=True).return_annotation}
    run.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _options(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]) for f in fields(group)
    ]

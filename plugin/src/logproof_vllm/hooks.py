"""Marks on hooked functions, and hooks that wait for a module to be imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

MARK = "__logproof__"


def marked(function: object) -> bool:
    """True for a function this package already replaced."""
    return bool(getattr(function, MARK, False))


def when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """Run `action(module)` now if module `name` is loaded, else right after something imports it.

    For modules that only one kind of process may load: importing them early would pull in what the others lack.
    """
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    sys.meta_path.insert(0, _Finder(name, action))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module with the other finders and wraps its loader."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.action)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as the inner loader does, then runs the action."""

    def __init__(self, inner: importlib.abc.Loader, action: Callable[[ModuleType], None]) -> None:
        self.inner = inner
        self.action = action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        self.action(module)

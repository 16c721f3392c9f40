"""The engine commands run in the world of the launcher's tests: see fakes/engine_world.py."""

from __future__ import annotations

from fakes.engine_world import checkpoint, packages, world

__all__ = ["checkpoint", "packages", "world"]

"""Tests of the launcher run in a world of their own: see fakes/engine_world.py."""

from __future__ import annotations

from fakes.engine_world import checkpoint, packages, world

__all__ = ["checkpoint", "packages", "world"]

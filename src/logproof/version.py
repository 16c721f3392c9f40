"""The version of the client, here so that every room can name it without loading the package's front door."""

from __future__ import annotations

VERSION = "0.1.0"

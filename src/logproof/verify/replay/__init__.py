"""Replays: what a trusted engine says of an artifact's tokens."""

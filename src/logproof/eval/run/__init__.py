"""Runs: samples through a pool of endpoints into a store."""

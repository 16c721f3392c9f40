"""Bytes over HTTP: endpoints, keys, retries, time limits, streams. Knows no IR."""

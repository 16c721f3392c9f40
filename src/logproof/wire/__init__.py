"""Bytes over HTTP: endpoints and their keys, one POST with retries and time limits, streams collected. Knows no IR."""

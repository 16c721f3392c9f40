"""Bytes over HTTP. Knows no IR.

In go a checked Endpoint with its key and WireRequests; out come whole WireReplies, or one typed error each: admission,
time limits, retries, kept-alive connections, event streams and error bodies are settled here. Nothing prints or stores
a key.
"""

"""The run store: durable records of one run in a directory of its own, their digests, and their export."""

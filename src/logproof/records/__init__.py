"""Durable records: the run store, content digests, packed columns, atomic files."""

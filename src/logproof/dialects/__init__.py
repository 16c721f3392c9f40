"""Dialects: a Request becomes a JSON body, and a reply's bytes become a checked Response. No I/O."""

"""Models: a Request goes in, a wire body goes out, and a checked Response comes back (client.py)."""

"""The commands that run tasks and read runs."""

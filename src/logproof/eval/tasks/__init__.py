"""Tasks: rows of datasets, and how each becomes a prompt."""

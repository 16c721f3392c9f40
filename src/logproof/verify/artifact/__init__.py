"""The artifact, one recorded inference: its fields, columns, files and signature."""

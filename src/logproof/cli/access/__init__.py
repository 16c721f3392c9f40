"""The commands that ask one endpoint."""

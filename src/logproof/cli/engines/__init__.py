"""The commands that start and stop engines of this machine."""

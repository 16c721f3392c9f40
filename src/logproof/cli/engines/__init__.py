"""The commands that start, list, read and stop engines of this machine."""

"""The tests of a verdict, one file each. Pure."""

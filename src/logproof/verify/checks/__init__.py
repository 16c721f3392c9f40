"""Checks, one file each: an artifact, and where there is one its replay, go in; findings come out. Pure.

`recorded` runs those that need no engine, `replayed` those of a replay; verify/check_table.py names them all.
"""

"""Verification: did the claimed model, with the claimed sampling settings, produce this completion?

An artifact (artifact.py) is checked in itself (structure, termination, selfreplay, lattice), then replayed on
a trusted engine (replay.py), lined up (align.py), measured (distance, seedreplay, sampling) and judged
against honest noise (conformal, evalue, policy) to a verdict with reasons (verdict.py).
All modules are pure functions on arrays except capture, replay, calibrate and audit, which call engines.
"""

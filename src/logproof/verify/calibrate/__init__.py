"""Calibration: prompts and live engines go in; honest pairs are collected and fitted; a policy comes out."""

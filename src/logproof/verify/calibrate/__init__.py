"""Calibration: honest pairs from live engines become a policy."""

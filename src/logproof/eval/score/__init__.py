"""Scores: from the replies of one sample to its outcome. Pure."""

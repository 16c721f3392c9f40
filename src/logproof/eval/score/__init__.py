"""Scores: the item and the replies of one sample go in; its outcome comes out, or the reason why it failed. Pure.

The replies are live ones or those of a store, read back; both are scored by the same functions.
"""

"""Records: an own call (capture) or an exchange that somebody else had (observed) goes in; artifacts come out.

Sampling that a request left out is resolved from the engine's word or the operator's, each value with its source.
"""

"""Statistics: arrays of ids and logprobs go in; distances, noise of samplers, p-values and evidence come out. Pure."""

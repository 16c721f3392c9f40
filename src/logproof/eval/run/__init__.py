"""Runs: jobs go in; their samples pass through a pool of endpoints; records of calls and samples go into a store.

Pace, patience with an engine that is gone, the canary, stop signals, events and counters belong to this. What a store
holds as done is not sent again.
"""

"""The commands that run tasks into a store, and those that read a store: reports, comparisons, exports are printed."""

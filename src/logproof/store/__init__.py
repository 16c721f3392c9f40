"""The run store: records of calls and samples go in as they come; after a crash all but the last 100 ms come out again.

One SQLite file in a directory a run. A reader sees what is durable while the run goes on; the keys of finished samples
let a resumed run send only what is missing. Exports are JSON lines or Parquet.
"""

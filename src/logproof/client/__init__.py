"""The client: a URL becomes a connection, and a Request becomes a checked Call over it.

In go a base URL with Options (connect.py), which a probe turns into Facts, a dialect and a tokenizer; then Requests.
Out come Calls: each request with its decisions, its checked response and the reply's bytes. `Client.call` is the one
path; pool.py spreads calls over several endpoints and waits out outages, access.py sends a person's few requests, and
model.py is the door for notebooks.
"""

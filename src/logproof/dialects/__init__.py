"""Dialects: a Request becomes a JSON body, and a reply's bytes become a checked Response. No I/O.

In: a Request and the endpoint's Facts. `lower` checks them and lets the dialect decide each leaf in a ledger, which
gives the wire request and its decisions. Out: the reply's bytes or events, through the dialect's `assemble` and `lift`,
as a Response that `reply_checks` holds against the request. Each dialect is a package named as its id.
"""

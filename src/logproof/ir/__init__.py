"""The intermediate representation: plain records of requests, responses and endpoints; no I/O, no wire.

A caller makes a `Request`, a dialect lowers it to a wire body and lifts the reply to a `Response`.
"""

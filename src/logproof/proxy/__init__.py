"""The recording proxy: requests of clients pass through to an engine; an artifact of each call comes out.

app routes a request; request_plan decides what to ask beyond it; upstream sends; strip takes out of the reply what the
client did not ask for, so that its bytes are those of a direct call; recorder carries the exchange to the sink.
"""

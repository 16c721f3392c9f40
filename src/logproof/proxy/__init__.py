"""The recording proxy: stands in front of an OpenAI-compatible engine and hands each exchange to a sink.

Flow: app.py routes a request; plan.py decides what to ask beyond it; upstream.py sends; strip.py takes what the client
did not ask for out of the reply again; recorder.py carries the `Exchange` to the sink. serve.py runs it all.
"""

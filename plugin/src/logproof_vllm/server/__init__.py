"""What runs in the API server.

In: the body of a request. ``asgi`` hands it to ``body``, which refuses it or passes it on; ``ingestion`` hooks the
request models and the input processor, so that its fields become the canonical entry that the engine reads; ``checks``
says what this server can serve, ``bad_request`` makes a 400 of every refusal. Out: the reply with ``report`` added.
``endpoint`` runs the canary at start and answers ``/logproof/status``; ``serve`` is the command ``logproof-vllm``.
"""

"""What runs beside the model: one patch of vLLM a file, each with the condition under which it goes.

In: the canonical entry of a request (``canonical.read``). Out: the enforced ids and the logprobs of each row, from
``v1`` or ``v2``; no end inside the list (``stops``); the place where a grammar went off (``grammar``). ``mq`` sizes the
queues between the processes, and ``v1_trial`` tries what ``v1`` builds on. Nothing here knows HTTP.
"""

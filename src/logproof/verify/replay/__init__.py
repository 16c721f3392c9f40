"""Replays: an artifact and a trusted engine go in; the engine's own distribution at each recorded token comes out.

By decode, where the engine has the plugin, else by one prefill; or the reason why neither can be.
"""

"""Plans: tasks, settings and the facts of an endpoint go in; jobs come out, checked before anything is sent.

A job knows the method of its task over the dialect (which channels, as text or as chat), its label ids, and the items,
keys and requests of its rows. The identity of a run, by which it is resumed, is made here too.
"""

"""The artifact, one recorded inference: fields and arrays go in; lines, rows and a digest come out, and back.

The columns, the constraint of the request, the seed, and the seal with its signature are parts of it.
"""

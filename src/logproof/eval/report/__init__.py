"""Reports: the records of a stored run go in; rates with errors and denominators come out, as record, table or page.

Two runs give a comparison, call by call. A later scoring of stored replies stands beside the first.
"""

"""The command line: each command parses, calls one function of the product, and prints.

One file a command, in the groups of the help: access, evaluate, verify, engines. What a group shares is in its
*_options.py; what all share is here: options.py, printing.py, progress.py. main.py registers the commands, and turns
every failure into one line and an exit code.
"""

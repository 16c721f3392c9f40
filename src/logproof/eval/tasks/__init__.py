"""Tasks: the rows of a data set go in; items come out: the prompts of a row with what is right.

One file a benchmark, with its prompt word for word; few-shot rows are drawn from a named split.
"""

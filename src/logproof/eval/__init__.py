"""Evaluation: benchmark tasks over scored prompts, label scores and generated text.

datasets -> rows -> task (an item a row) -> requests -> replies -> outcome -> metrics -> report. Everything
between a row and a number is pure; the runner does the calls and keeps the store.
"""

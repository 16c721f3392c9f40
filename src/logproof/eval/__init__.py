"""Evaluation: benchmark tasks over scored prompts, label scores and generated text.

datasets -> rows -> task (an item a row) -> requests -> replies -> outcome -> rates -> report. Requests, scores and
rates are pure; run/ does the calls and keeps the store.
"""

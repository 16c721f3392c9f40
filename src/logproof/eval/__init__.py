"""Evaluation: tasks and a model go in; a stored run and its report come out.

rows -> items (tasks) -> jobs and requests (plan) -> replies and records (run) -> outcomes (score) -> rates (report).
Requests, scores and rates are pure; run/ does the calls and keeps the store.
"""

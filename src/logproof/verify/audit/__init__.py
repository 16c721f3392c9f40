"""Audits: a provider, a trusted engine and a policy go in; verdicts are added up until they settle; a report comes out.

`verify` judges artifacts that are there already; `explain` says which other prompt would fit a rejected one.
"""

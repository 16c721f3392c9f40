"""Verification: did the claimed model, with the claimed sampling, produce this completion?

A call or an observed exchange becomes an artifact (record). It is checked in itself (checks) and replayed on a trusted
engine (replay); findings and a policy become a verdict (judge, verdict). Policies come from honest pairs (calibrate),
many verdicts on one provider are an audit. Only record.capture, replay, calibrate and audit call engines.
"""

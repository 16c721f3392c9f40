"""Audits: records of one provider, verified until the evidence settles."""

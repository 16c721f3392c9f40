"""Token-exact access, scoring, replay and verification of LLM inference."""

__version__ = "0.1.0"

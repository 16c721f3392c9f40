"""anthropic_messages: /v1/messages."""

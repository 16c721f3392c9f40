"""openai_chat: /v1/chat/completions."""

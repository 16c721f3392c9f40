"""openai_completions: /v1/completions in the fields that OpenAI documented."""

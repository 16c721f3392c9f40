"""openai_responses: /v1/responses."""

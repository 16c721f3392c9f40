"""What several dialects share: decoding, logprobs, texts of tokens, structured output, fields of engines."""

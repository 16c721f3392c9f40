"""What several dialects share: decoding, logprobs, texts of tokens, walks over messages, fields of engines."""

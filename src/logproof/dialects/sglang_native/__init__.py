"""sglang_native: SGLang's /generate."""

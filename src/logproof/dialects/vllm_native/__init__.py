"""vllm_native: vLLM's /v1/completions, with vLLM's own fields."""

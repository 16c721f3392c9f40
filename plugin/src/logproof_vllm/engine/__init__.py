"""What runs beside the model: one patch of vLLM a file, each with the condition under which it goes."""

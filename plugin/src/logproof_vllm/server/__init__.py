"""What runs in the API server: reads the fields of a request, refuses or carries them, and reports in the reply."""

"""google_genai: /v1beta/models/MODEL:generateContent."""

"""Records: from own calls, or from exchanges that somebody else had, to artifacts."""

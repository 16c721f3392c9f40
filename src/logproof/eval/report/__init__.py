"""Reports: what a stored run says, and how two runs compare."""

"""Statistics on arrays: distances, samplers, noise and evidence. Pure."""

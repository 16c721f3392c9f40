"""Plans: which requests a task makes of one endpoint, decided before any is sent."""

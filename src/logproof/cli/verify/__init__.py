"""The commands that record, replay and judge."""

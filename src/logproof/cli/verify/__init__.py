"""The commands that record, replay and judge: prompts, artifacts and policies go in; files and verdicts come out."""

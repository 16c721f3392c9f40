"""Options that the commands of this group share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Tasks = Annotated[list[str] | None, typer.Argument(help="Tasks to run.", metavar="TASK...")]
Data = Annotated[str | None, typer.Option("--data", help="Directory or file of rows, or hub:REPO; else our own rows.")]
Limit = Annotated[str | None, typer.Option("--limit", help="Rows a task: a count, or a fraction below 1.")]
Shots = Annotated[int | None, typer.Option("--shots", help="Few-shot rows; else each task's own number.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the few-shot draw and of sampling.")]
AutoConcurrency = Annotated[
    str, typer.Option("--concurrency", "-c", help="Samples at a time, and requests at each endpoint; or auto.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="URL", help="Base URL of an endpoint; repeat it for several of one model."),
]
DEFAULT_URL = "http://127.0.0.1:8000"
Uncond = Annotated[bool, typer.Option("--uncond", help="Also score options behind a neutral context (acc_uncond).")]
TopK = Annotated[int, typer.Option("--top-k", help="Width where labels are read from a top-k list.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Most generated tokens; else the task's own.")]
Out = Annotated[Path | None, typer.Option("--out", help="Directory of the run; must hold none unless --resume.")]
Patience = Annotated[float, typer.Option("--patience", min=0, help="Seconds to wait for an engine that is gone.")]
RunDir = Annotated[Path, typer.Argument(help="Directory of the run.", metavar="RUN")]

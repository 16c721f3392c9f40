"""`logproof`: all commands under one name, every failure one line and an exit code.

Exit codes are those at the top of logproof/errors.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from logproof.cli.access.dialects import dialects
from logproof.cli.access.generate import generate
from logproof.cli.access.probe import probe
from logproof.cli.access.score import score
from logproof.cli.engines import engine
from logproof.cli.engines.demo import demo
from logproof.cli.evaluate.eval import evaluate
from logproof.cli.evaluate.export import export
from logproof.cli.evaluate.parity import parity
from logproof.cli.evaluate.report import report
from logproof.cli.evaluate.rescore import rescore
from logproof.cli.evaluate.runs import runs
from logproof.cli.evaluate.show import show
from logproof.cli.printing import fail
from logproof.cli.verify.audit import audit
from logproof.cli.verify.audits import audits
from logproof.cli.verify.calibrate import calibrate
from logproof.cli.verify.capture import capture
from logproof.cli.verify.proxy import proxy
from logproof.cli.verify.replay import replay
from logproof.cli.verify.verify import verify
from logproof.errors import LogproofError
from logproof.version import VERSION

app = typer.Typer(
    name="logproof",
    help="Exact tokens, ids and logprobs from inference engines: score, evaluate, replay, verify.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(score)
app.command()(generate)
app.command()(probe)
app.command()(dialects)
app.command("eval")(evaluate)
app.command()(parity)
app.command()(rescore)
app.command()(report)
app.command()(runs)
app.command()(show)
app.command()(export)
app.command()(capture)
app.command()(proxy)
app.command()(replay)
app.command()(verify)
app.command()(calibrate)
app.command()(audit)
app.command()(audits)
app.command()(demo)
app.add_typer(engine.app, name="engine")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(VERSION)


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit code; prints one line, and a hint, for every failure."""
    try:
        result = app(list(args) or ["--help"], standalone_mode=False)
        return result if isinstance(result, int) else 0
    except LogproofError as error:
        return fail(str(error), error.hint, error.exit_code)
    except typer.Exit as error:
        return error.exit_code
    except TyperException as error:
        return fail(error.format_message(), "logproof COMMAND --help shows what it takes", 3)
    except (KeyboardInterrupt, typer.Abort):
        return fail("interrupted", None, 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        return fail(f"{error.filename or 'disk'}: {error.strerror or error}", None, 5)
    except Exception as error:
        if os.environ.get("LOGPROOF_TRACEBACK"):
            raise
        kind = type(error).__name__
        return fail(f"internal error, {kind}: {error}", "LOGPROOF_TRACEBACK=1 shows where; please report it", 70)

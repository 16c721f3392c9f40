"""Entry point of the console script and of `python -m logproof`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its modules still load ends as it does later: one line, exit code 130."""
    try:
        from logproof.cli.main import run
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

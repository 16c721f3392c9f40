"""Options that the access commands share, and their way into client/access.py `Access`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.option_groups import OptionGroup
from logproof.cli.options import Drop, Header, KeyEnv, ModelName, Timeout, TokenizerPath, connection
from logproof.client.access import Access
from logproof.dialects.capabilities import parse_requirement

Record = Annotated[Path | None, typer.Option("--record", metavar="DIR", help="Write each exchange as a file.")]
FromFile = Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")]
Require = Annotated[list[str] | None, typer.Option("--require", metavar="KEY[=K]", help="Capability; repeatable.")]


@dataclass(frozen=True)
class AccessOptions(OptionGroup):
    """How an endpoint is reached, what it must be able to do, and where exchanges are kept."""

    model_name: ModelName = None
    key_env: KeyEnv = None
    header: Header = None
    timeout: Timeout = None
    tokenizer: TokenizerPath = None
    drop: Drop = None
    require: Require = None
    record: Record = None

    def access(self, url: str, dialect: str) -> Access:
        """The endpoint as the options name it. Raises UsageError for a malformed one."""
        options = connection(
            dialect,
            self.model_name,
            key_env=self.key_env,
            header=self.header,
            timeout=self.timeout,
            tokenizer=self.tokenizer,
            drop=self.drop,
        )
        needs = dict(parse_requirement(text) for text in self.require or [])
        return Access(url=url, options=options, needs=needs, record=self.record)

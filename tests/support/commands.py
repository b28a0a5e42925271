"""Commands as users type them."""

from __future__ import annotations

from click.testing import CliRunner

from mimdsim.cli import main


def mimdsim(*arguments: str, code: int = 0) -> str:
    """Output of a command, its exit code checked; of --json without what work says on stderr."""
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if "--json" in arguments and code != 2 else result.output

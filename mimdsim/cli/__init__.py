"""The command line. Everything heavy is imported inside the command that needs it, so `--help` answers at once."""

from __future__ import annotations

import click

from mimdsim.base import __version__
from mimdsim.cli.calibrate import calibrate_command, narrow_command
from mimdsim.cli.check import check_command
from mimdsim.cli.compare import compare_command
from mimdsim.cli.explain import explain_command
from mimdsim.cli.export_model import export_command
from mimdsim.cli.group import Commands
from mimdsim.cli.import_model import import_command
from mimdsim.cli.list import list_command
from mimdsim.cli.place import place_command
from mimdsim.cli.report import report_command
from mimdsim.cli.reproduce import reproduce_command
from mimdsim.cli.run import run_command
from mimdsim.cli.study import study_command
from mimdsim.cli.sweep import sweep_command
from mimdsim.cli.validate import validate_command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mimdsim")
@click.option("--allow-code", is_flag=True, help="Run Python files that workloads name (network.models).")
def main(allow_code: bool) -> None:
    """What-if laboratory for processors of many independent tiles.

    WORKLOAD and MACHINE are names that `mimdsim list` shows, or TOML files.
    """
    if allow_code:
        from mimdsim.workload import allow_code as allow

        allow()


for _command in (
    run_command, compare_command, sweep_command, study_command, check_command, validate_command, calibrate_command,
    narrow_command, reproduce_command, place_command, explain_command, report_command, import_command, export_command,
    list_command,
):  # fmt: skip
    main.add_command(_command)

if __name__ == "__main__":
    main()

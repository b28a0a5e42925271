"""`mimdsim list`: the workloads, machines and studies that are there; all that is said of one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from mimdsim.base.console import say
from mimdsim.base.errors import DescriptionError, MimdsimError, shortened
from mimdsim.cli.options import JSON

if TYPE_CHECKING:
    from mimdsim.machine import GpuMachine, MimdMachine
    from mimdsim.studies import Study
    from mimdsim.workload import Workload


@click.command("list", short_help="List the available workloads, machines and studies.")
@click.option(
    "--machine",
    metavar="NAME",
    help="Print every number of this machine: unit, source, base that it is of, what it enters.",
)
@JSON
def list_command(machine: str | None, as_json: bool) -> None:
    """List the available workloads, machines and studies, and the files of those that do not come with mimdsim.

    With --machine: every number of a machine with its unit, its source (and the base that it is of) and the sums that
    it enters.
    """
    if machine is None and as_json:
        raise DescriptionError("list", ["--json is for  mimdsim list --machine NAME --json"])
    if machine is not None:
        _say_machine(machine, as_json)
        return
    from mimdsim.base.search_path import find_description, where_from
    from mimdsim.machine import find_machine, list_machines, load_machine
    from mimdsim.studies import list_studies, read_study
    from mimdsim.workload import find_workload, list_workloads, load_workload

    say("workloads")
    for name in list_workloads():
        say(_listed(name, load_workload, where_from("workloads", find_workload(name))))
    say("machines")
    for name in list_machines():
        say(_listed(name, load_machine, where_from("models", find_machine(name))))
    say("studies")
    for name in list_studies():
        say(_listed(name, read_study, where_from("studies", find_description("studies", "study", name))))


def _say_machine(name: str, as_json: bool) -> None:
    from mimdsim.base.files import dump_json
    from mimdsim.machine import load_machine
    from mimdsim.machine.load import listed_values
    from mimdsim.machine.numbers import machine_record, machine_table

    machine, values = load_machine(name), listed_values(name)
    if as_json:
        say(dump_json(machine_record(machine, values)), nl=False)
        return
    for line in machine_table(machine, values):
        say(line)


def _listed(name: str, load: Callable[[str], Workload | MimdMachine | GpuMachine | Study], file: str) -> str:
    """A line of `list`; files in a folder named models that are not machines are reported without hiding others."""
    try:
        title = load(name).title
    except MimdsimError as problem:
        title = f"cannot be read: {shortened(' '.join(str(problem).split()), 160)}"
    return f"  {name:<22} {title}" + (f"  [{file}]" if file else "")

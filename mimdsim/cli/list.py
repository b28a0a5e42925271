"""`mimdsim list`: the workloads, machines and studies that are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from mimdsim.base.console import say
from mimdsim.base.errors import MimdsimError, shortened

if TYPE_CHECKING:
    from mimdsim.machine import GpuMachine, MimdMachine
    from mimdsim.studies import Study
    from mimdsim.workload import Workload


@click.command("list", short_help="List the available workloads, machines and studies.")
def list_command() -> None:
    """List the available workloads, machines and studies, and the files of those that do not come with mimdsim."""
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


def _listed(name: str, load: Callable[[str], Workload | MimdMachine | GpuMachine | Study], file: str) -> str:
    """A line of `list`; files in a folder named models that are not machines are reported without hiding others."""
    try:
        title = load(name).title
    except MimdsimError as problem:
        title = f"cannot be read: {shortened(' '.join(str(problem).split()), 160)}"
    return f"  {name:<22} {title}" + (f"  [{file}]" if file else "")

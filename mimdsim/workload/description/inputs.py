"""The contents of what a workload reads: its recordings, the model that it imports, the weights that it starts from."""

from __future__ import annotations

from mimdsim.base.files import with_home
from mimdsim.base.identity import Input, input_of
from mimdsim.base.schema import files_named
from mimdsim.workload.data.dataset import source_files
from mimdsim.workload.description.workload import Workload

RECORDINGS = "data.path"  # of which each source reads other files


def inputs_of(workload: Workload) -> tuple[Input, ...]:
    """The files of every key that names some, and those that come with a data source, hashed once in a process.

    Raises DataFileError for what is no file, or cannot be read; what is not there has no files.
    """
    named = dict(files_named(workload))
    recordings = source_files(workload.data)
    found = [input_of(key, path, [("", with_home(path))]) for key, path in named.items() if key != RECORDINGS]
    if recordings or RECORDINGS in named:
        key, path = (RECORDINGS, named[RECORDINGS]) if RECORDINGS in named else ("data.source", workload.data.source)
        found.append(input_of(key, path, recordings))
    return tuple(found)

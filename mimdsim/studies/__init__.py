"""Many points as one study: what is varied, their timing, what they answer, and the files written."""

from mimdsim.studies.description import Study, list_studies, make_study, read_study, write_study
from mimdsim.studies.executors import Dask, Local, WorkerPool
from mimdsim.studies.files import write_figures
from mimdsim.studies.points import parse_axes
from mimdsim.studies.results import note_lines, table_lines
from mimdsim.studies.runner import StudyResult, run_study

__all__ = [
    "Dask",
    "Local",
    "Study",
    "StudyResult",
    "WorkerPool",
    "list_studies",
    "make_study",
    "note_lines",
    "parse_axes",
    "read_study",
    "run_study",
    "table_lines",
    "write_figures",
    "write_study",
]

"""Many points as one study: what is varied, their timing, what they answer, and the files written."""

from mimdsim.base.called import make_called
from mimdsim.study.description import Study, list_studies, make_study, read_study, write_study
from mimdsim.study.engines import Dask, Engine, Local
from mimdsim.study.files import write_figures
from mimdsim.study.points import parse_axes
from mimdsim.study.results import note_lines, table_lines
from mimdsim.study.running import default_processes
from mimdsim.study.studied import Studied, run_study

__all__ = [
    "Dask",
    "Engine",
    "Local",
    "Studied",
    "Study",
    "default_processes",
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

make_called(__name__)

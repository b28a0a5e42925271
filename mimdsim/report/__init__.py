"""A profile as a console summary and as a page with figures and tables. Reads profiles and nothing else.

Drawing and templates are imported when a page is written, so that importing this package is cheap.
"""

from mimdsim.report.console import difference_lines, marked_as_bad, short_lines, summary_lines
from mimdsim.report.headline import headline_record
from mimdsim.report.page import begin_figures, prepare_figures, report_files, write_report

__all__ = [
    "begin_figures",
    "difference_lines",
    "headline_record",
    "marked_as_bad",
    "prepare_figures",
    "report_files",
    "short_lines",
    "summary_lines",
    "write_report",
]

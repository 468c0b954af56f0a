"""The report of a design: one self-contained HTML page, and a CSV file of every table.

:func:`render` and :func:`write_report` make it from plain data (:class:`ReportData`).
"""

from .collect import collect
from .data import LearningData, ReportData, SearchData
from .headline import headline
from .page import render, write_report

__all__ = ["LearningData", "ReportData", "SearchData", "collect", "headline", "render", "write_report"]

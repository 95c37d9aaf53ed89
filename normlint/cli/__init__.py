"""The command line, and the only place that exits."""

from normlint.cli import check, pages
from normlint.cli.app import app, run

__all__ = ["app", "check", "pages", "run"]

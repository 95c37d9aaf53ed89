"""The command line, and the only place that exits."""

from normlint.cli import check
from normlint.cli.app import app, run

__all__ = ["app", "check", "run"]

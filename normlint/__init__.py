"""Find and repair problems with the normalisation layers of ONNX models.

>>> import normlint
>>> report = normlint.check("sample_models/vit_opset_13.onnx", select=["NL201"])
>>> len(report.findings), report.exit_code
(5, 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.lazily import names_of

if TYPE_CHECKING:
    from normlint.api import apply as apply
    from normlint.api import check as check
    from normlint.context import Context as Context
    from normlint.context.settings import Settings as Settings
    from normlint.normalization import Form as Form
    from normlint.normalization import Kind as Kind
    from normlint.normalization import NearNorm as NearNorm
    from normlint.normalization import Normalization as Normalization
    from normlint.results import Finding as Finding
    from normlint.results import ModelReport as ModelReport
    from normlint.results import Report as Report
    from normlint.rule import Applicability as Applicability
    from normlint.rule import Computed as Computed
    from normlint.rule import Diagnostic as Diagnostic
    from normlint.rule import NewNode as NewNode
    from normlint.rule import NotFixed as NotFixed
    from normlint.rule import Reason as Reason
    from normlint.rule import Redirect as Redirect
    from normlint.rule import Replace as Replace
    from normlint.rule import Rewrite as Rewrite
    from normlint.rule import Rule as Rule
    from normlint.rule import Severity as Severity

__version__ = "0.1.0"

_HOMES = {
    "normlint.api": ("apply", "check"),
    "normlint.context": ("Context",),
    "normlint.context.settings": ("Settings",),
    "normlint.normalization": ("Form", "Kind", "NearNorm", "Normalization"),
    "normlint.results": ("Finding", "ModelReport", "Report"),
    "normlint.rule": (
        *("Applicability", "Computed", "Diagnostic", "NewNode", "NotFixed", "Reason"),
        *("Redirect", "Replace", "Rewrite", "Rule", "Severity"),
    ),
}
__all__ = ["__version__", *sorted(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604 - names are strings

if not TYPE_CHECKING:
    __getattr__ = names_of(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)

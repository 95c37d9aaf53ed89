"""What must come of any input: a finding or a clean run, within bounds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError
from model.building import resolved

from normlint.context import Settings
from normlint.engine import Options, check_model
from normlint.model import FileFault, open_model
from normlint.plugins import load_rules

if TYPE_CHECKING:
    from normlint.results import ModelReport

NO_MODEL = frozenset(("NL902", "NL903", "NL904", "NL905"))


def read(data: bytes) -> str:
    """Open bytes; give the code of the fault, or nothing where there is a model.

    What onnx loads must be loaded to the same, and what it refuses must be refused.
    """
    try:
        expected = onnx.ModelProto.FromString(data)
    except DecodeError:
        expected = None
    try:
        model = open_model(data)
    except FileFault as fault:
        code = fault.code
    else:
        assert expected is not None, "what onnx refuses was loaded"
        same = resolved(model).SerializeToString() == expected.SerializeToString()
        assert same, "what was loaded is something else"
        return ""
    assert code in (NO_MODEL if expected is None else {"NL902", "NL903", "NL904", "NL907"}), code
    return code


def look(data: bytes) -> ModelReport:
    """Check bytes with every rule."""
    return check_model(
        None,
        data=data,
        name="hostile",
        rules=load_rules(),
        settings=Settings(),
        options=Options(inventory=True),
    )


def repair(data: bytes) -> ModelReport:
    """Repair bytes with every rule, unsafe fixes included; nothing else may be written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "repaired.onnx")
        report = check_model(
            None,
            data=data,
            name="hostile",
            rules=load_rules(),
            settings=Settings(target_opset=23, unsafe_fixes=True),
            options=Options(apply=True, output=path),
        )
        assert {entry.name for entry in Path(folder).iterdir()} <= {path.name}
        if report.written is not None:
            onnx.load(path, load_external_data=False)
    return report

"""The room that touches files: open a model without its weights, read values, save surgically.

Importing it loads neither onnx nor numpy: a file that is no model is named without them.
"""

from typing import TYPE_CHECKING

from normlint.lazily import names_of
from normlint.model.fault import FileFault, SaveError, ValuesUnavailable
from normlint.model.file import ModelFile, open_model
from normlint.model.placeholder import NEW, SELF, new_tensor
from normlint.model.sniff import missing_hint, sniff
from normlint.model.source import Source

if TYPE_CHECKING:
    from normlint.model.save import Written, copy_model, save_bytes, save_model
else:
    __getattr__ = names_of(
        __name__, {"normlint.model.save": ("Written", "copy_model", "save_bytes", "save_model")}
    )

__all__ = [
    "NEW",
    "SELF",
    "FileFault",
    "ModelFile",
    "SaveError",
    "Source",
    "ValuesUnavailable",
    "Written",
    "copy_model",
    "missing_hint",
    "new_tensor",
    "open_model",
    "save_bytes",
    "save_model",
    "sniff",
]

"""What a rule may ask about a model, computed once and when it is asked for."""

from typing import TYPE_CHECKING

from normlint.context.settings import Intent, Settings
from normlint.lazily import names_of

if TYPE_CHECKING:
    from normlint.context.context import Context
else:
    # Settings are read before a model is.
    __getattr__ = names_of(__name__, {"normlint.context.context": ("Context",)})

__all__ = ["Context", "Intent", "Settings"]

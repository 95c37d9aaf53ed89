"""What a rule may ask about a model, computed once and when it is asked for."""

from normlint.context.context import Context
from normlint.context.settings import Intent, Settings

__all__ = ["Context", "Intent", "Settings"]

"""What a rule may ask about a model, computed once and when it is asked for."""

from typing import TYPE_CHECKING, Any

from normlint.context.settings import Intent, Settings

if TYPE_CHECKING:
    from normlint.context.context import Context

__all__ = ["Context", "Intent", "Settings"]


def __getattr__(name: str) -> Any:
    """Import the context when it is asked for: settings are read before a model is."""
    if name != "Context":
        raise AttributeError(f"module 'normlint.context' has no attribute {name!r}")
    from normlint.context.context import Context

    return Context

"""Configuration: files, the nearest one winning, and what the command line says over them."""

from normlint.config.config import Config
from normlint.config.resolve import Resolver
from normlint.config.tables import inline

__all__ = ["Config", "Resolver", "inline"]

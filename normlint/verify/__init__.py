"""Proof that a rewrite does not move the numbers, before it is made."""

from normlint.verify.fits import misfit
from normlint.verify.region import Failure, verify_rewrite

__all__ = ["Failure", "misfit", "verify_rewrite"]

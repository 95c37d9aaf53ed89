"""Proof that a rewrite does not move the numbers, before it is made."""

from normlint.verify.region import Failure, verify_rewrite

__all__ = ["Failure", "verify_rewrite"]

"""The words for where a normalisation stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Place(StrEnum):
    """Where a normalisation stands."""

    PRE = "pre"
    """At the start of a branch: x + f(norm(x))."""
    POST = "post"
    """On the sum: norm(x + f(x))."""
    SANDWICH = "sandwich"
    """At the start or the end of a branch that has both: x + norm(f(norm(x)))."""
    RES_POST = "res-post"
    """At the end of a branch: x + norm(f(x))."""
    PARALLEL = "parallel"
    """At the start of one of two branches side by side: x + f(norm(x)) + g(norm(x))."""
    QK = "qk"
    """On queries or keys."""
    EMBEDDING = "embedding"
    """On what the stream starts with."""
    FINAL = "final"
    """Behind the last layer."""
    DEEPNORM = "deepnorm"
    """On the sum of a scaled skip path and a branch: norm(a * x + f(x))."""
    BRANCH = "branch"
    """Within a branch, behind a learned layer."""
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Placement:
    """Where one normalisation stands: in which stream, in which of its layers from 0.

    `follows` is the operator in front, layout and constants apart; None at a graph input.
    """

    word: Place
    stream: int | None = None
    depth: int | None = None
    follows: str | None = None

"""Random graphs of vision and sequence models, and what is needed to run them."""

from differential.random_graphs.examples import Example, example
from differential.random_graphs.graph import RandomGraph

__all__ = ["Example", "RandomGraph", "example"]

"""The random graphs notice each guard of a rewrite that is taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from differential.judging import judge
from differential.random_graphs import example

from normlint.normalization import Parameter
from normlint.rewrite.affine import Affine, Weights

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = pytest.MonkeyPatch

MOST = 400
FOUND = {
    "overridable_weights_are_constants": 87,
    "padding_is_no_matter": 1,
    "scales_are_ones": 6,
    "shifts_stop_nowhere": 62,
}
"""Seeds that notice a mutation. Where one no longer does, another is searched for."""

MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def mutation(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTATIONS[function.__name__] = function
    return function


@mutation
def shifts_stop_nowhere(patch: Patch) -> None:
    patch.setattr(Affine, "check", lambda *_: None)


@mutation
def padding_is_no_matter(patch: Patch) -> None:
    patch.setattr(Affine, "has_shift", False)


@mutation
def scales_are_ones(patch: Patch) -> None:
    patch.setattr(Parameter, "is_always", lambda *_: True)


@mutation
def overridable_weights_are_constants(patch: Patch) -> None:
    def require(self: Weights, tensor: Any, at: Any) -> Any:
        del self, at
        return tensor

    patch.setattr(Weights, "require", require)


def notices(seed: int) -> bool:
    try:
        return bool(judge(example(seed)).problems)
    except Exception:  # noqa: BLE001 - a mutation may break anything
        return True


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_guard_that_is_gone_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    first = FOUND.get(name)
    assert (first is not None and notices(first)) or any(map(notices, range(MOST)))

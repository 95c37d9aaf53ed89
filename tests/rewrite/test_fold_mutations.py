"""The random networks notice each guard of folding that is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rewrite.test_fold_networks import check, network, runs

from normlint.rewrite import fold_backward, fold_inputs, fold_outputs, fold_sums
from normlint.rewrite.affine import Affine, Weights
from normlint.rewrite.fold_maps import Reach

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = pytest.MonkeyPatch

MOST = 600
FOUND = {
    "activations_in_operators_commute": 163,
    "channels_keep_their_order": 343,
    "every_part_has_the_channels": 551,
    "every_part_takes_the_shift": 40,
    "maxima_take_any_sign": 3054,
    "overridable_weights_are_constants": 11,
    "what_is_subtracted_is_added": 90,
    "zeros_around_are_no_matter": 60,
}
"""Seeds that notice a mutation. Where one no longer does, another is searched for."""

MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def mutation(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTATIONS[function.__name__] = function
    return function


@mutation
def zeros_around_are_no_matter(patch: Patch) -> None:
    patch.setattr(Reach, "is_uniform", True)


@mutation
def every_part_takes_the_shift(patch: Patch) -> None:
    patch.setattr(Affine, "without_shift", lambda self: self)


@mutation
def what_is_subtracted_is_added(patch: Patch) -> None:
    def parts_of(*given: object) -> list[fold_sums.Part]:
        return [replace(part, sign=1) for part in fold_sums.parts_of(*given)]  # type: ignore[arg-type]

    patch.setattr(fold_backward, "parts_of", parts_of)


@mutation
def every_part_has_the_channels(patch: Patch) -> None:
    def axis_of(node: object, tensor: object, axis: int, channels: int) -> int:
        del channels
        return max(axis - node.y.rank + tensor.rank, 0)  # type: ignore[attr-defined]

    patch.setattr(fold_sums, "_axis", axis_of)


@mutation
def channels_keep_their_order(patch: Patch) -> None:
    patch.setattr(Affine, "across", lambda self, _: self)


@mutation
def activations_in_operators_commute(patch: Patch) -> None:
    patch.setattr(fold_outputs, "has_activation", lambda _: False)
    patch.setattr(fold_inputs, "has_activation", lambda _: False)


@mutation
def maxima_take_any_sign(patch: Patch) -> None:
    patch.setattr(Affine, "is_positive", True)


@mutation
def overridable_weights_are_constants(patch: Patch) -> None:
    patch.setattr(Weights, "require", lambda _, tensor, at: tensor or at)


def notices(seed: int) -> bool:
    layers, model = network(seed)
    if not runs(model, layers):
        return False
    if seed % 2:
        model = layers.overridable(model)
    try:
        check(model, layers, bias_maps=seed % 4 < 2)
    except Exception:  # noqa: BLE001 - a mutation may break anything
        return True
    return False


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_guard_that_is_gone_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    first = FOUND.get(name)
    assert (first is not None and notices(first)) or any(map(notices, range(MOST)))

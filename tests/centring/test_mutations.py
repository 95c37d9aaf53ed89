"""The random graphs notice each guard of the analysis that is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from centring.random_streams import example
from centring.repairing import outcome
from centring.soup_nodes import soup

from normlint.context import (
    zero_mean_moves,
    zero_mean_pins,
    zero_mean_readers,
    zero_mean_sites,
    zero_mean_sources,
    zero_mean_steps,
    zero_mean_writers,
)
from normlint.context.constants import Constants
from normlint.context.zero_mean_pins import Pins
from normlint.context.zero_mean_readers import Readers
from normlint.context.zero_mean_sites import Site
from normlint.context.zero_mean_steps import Step
from normlint.graph import Constant, types
from normlint.rewrite import centre, centre_affine, centre_plan
from normlint.rewrite.centre import Edits
from normlint.rewrite.centre_constants import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from centring.random_streams import Example

    Patch = pytest.MonkeyPatch

MOST = 1500
EXACT = 1e-7

FOUND = {
    "any_scale_has_a_constant_mean": 15,
    "biases_of_norms_keep_their_mean": 12,
    "captured_tensors_are_free": 128,
    "casts_to_integers_are_linear": 104,
    "channels_may_be_joined": 103,
    "channels_may_be_split": 67,
    "every_column_sums_to_zero": 12,
    "every_mean_is_over_the_channels": 401,
    "every_norm_is_over_the_channels": 162,
    "every_softmax_is_indifferent": 86,
    "grouped_convolutions_write": 66,
    "layer_scale_stays_out_of_the_weights": 11,
    "one_of_several_reads_is_enough": 15,
    "overridable_weights_are_constants": 8,
    "padding_may_shift_channels": 90,
    "readers_do_not_make_up_for_a_mean": 12,
    "reshape_keeps_everything": 47,
    "reversed_channels_keep_their_bias": 183,
    "shifts_stay": 6,
    "vectors_are_factors": 11,
    "what_is_joined_has_the_bias": 98,
    "what_layer_scale_multiplies_has_other_readers": 6,
}
"""Seeds that notice a mutation. Where one no longer does, another is searched for."""

FOUND_IN_SOUP = {
    "new_biases_keep_their_mean": 868,
    "means_of_one_element_count": 412,
    "siblings_may_be_centred": 225,
    "every_rms_norm_is_over_the_channels": 5626,
}
"""The same among the random models that are made without a plan."""

MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def mutation(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTATIONS[function.__name__] = function
    return function


def reader(patch: Patch, *ops: str, by: Any) -> None:
    readers = {**zero_mean_steps._READERS, **dict.fromkeys(ops, by)}
    patch.setattr(zero_mean_steps, "_READERS", readers)


def kept(node: Any, out: Site, _: Any) -> Step | None:
    return zero_mean_sites.kept(node, out)


@mutation
def every_reader_is_indifferent(patch: Patch) -> None:
    patch.setattr(Readers, "is_indifferent", lambda *_: True)


@mutation
def every_softmax_is_indifferent(patch: Patch) -> None:
    patch.setattr(Readers, "_over_channels", lambda *_: True)


@mutation
def every_mean_is_subtracted(patch: Patch) -> None:
    patch.setattr(zero_mean_readers, "_only_subtracted", lambda *_: True)


@mutation
def every_mean_is_over_the_channels(patch: Patch) -> None:
    patch.setattr(Readers, "_is_mean", lambda _s, node, _at: node.op == "ReduceMean")


@mutation
def every_column_sums_to_zero(patch: Patch) -> None:
    patch.setattr(zero_mean_readers, "_is_zero_mean", lambda *_: True)


@mutation
def every_norm_is_over_the_channels(patch: Patch) -> None:
    patch.setattr(
        zero_mean_readers._Cluster, "normalises", lambda self, at: self.at.tensor is at.tensor
    )
    patch.setattr(Pins, "_pin_doubles", lambda _: None)


@mutation
def every_norm_is_closed(patch: Patch) -> None:
    patch.setattr(zero_mean_readers._Cluster, "is_closed", True)


@mutation
def outputs_are_free(patch: Patch) -> None:
    def pin(self: Pins, at: Site, source: Any) -> None:
        if isinstance(source, zero_mean_sources.Unfit):
            self.pin(at, zero_mean_pins.Pin(source.reason, source.at, source.detail))

    patch.setattr(Pins, "_pin_by_itself", pin)


@mutation
def captured_tensors_are_free(patch: Patch) -> None:
    def pin(self: Pins, at: Site, node: Any) -> None:
        if node.graph is at.tensor.graph:
            original(self, at, node)

    original = Pins._pin_by_reader
    patch.setattr(Pins, "_pin_by_reader", pin)


@mutation
def pins_do_not_spread(patch: Patch) -> None:
    patch.setattr(Pins, "settle", lambda self: self._fresh.clear())


@mutation
def one_of_several_reads_is_enough(patch: Patch) -> None:
    patch.setattr(Step, "reads", lambda self, at: any(found == at for _, found in self.full))


@mutation
def grouped_convolutions_write(patch: Patch) -> None:
    def conv(node: Any, out: Site, constants: Any) -> Step | None:
        groups = node.attrs.pop("group", 1)
        try:
            return zero_mean_steps._conv(node, out, constants)
        finally:
            node.attrs["group"] = groups

    reader(patch, "Conv", by=conv)


@mutation
def vectors_are_factors(patch: Patch) -> None:
    def product(node: Any, out: Site, _: Any) -> Step | None:
        found = zero_mean_sites.role(node.inputs[0], out)
        return Step(node, ((0, found[1]),)) if found and found[0] == "full" else None

    reader(patch, "Mul", "Div", by=product)


@mutation
def layer_scale_stays_out_of_the_weights(patch: Patch) -> None:
    patch.setattr(centre, "scaled_by", lambda *_, **__: Change("nothing", 1, lambda values: values))


@mutation
def what_layer_scale_multiplies_has_other_readers(patch: Patch) -> None:
    original = zero_mean_writers._private_steps

    def steps(source: Site, constants: Any) -> Any:
        tensor = source.tensor
        if not tensor.is_output:
            return original(source, constants)
        patched, tensor.graph.output_set = tensor.graph.output_set, frozenset()
        try:
            return original(source, constants)
        finally:
            tensor.graph.output_set = patched

    patch.setattr(zero_mean_writers, "_private_steps", steps)


@mutation
def shifts_stay(patch: Patch) -> None:
    patch.setattr(centre, "without_mean", lambda _: Change("nothing", 1, lambda values: values))


@mutation
def shifts_are_dropped_from_the_left_as_well(patch: Patch) -> None:
    for module in (centre, zero_mean_sources):
        patch.setattr(module, "can_be_dropped", lambda how, _at: how.node.op in {"Add", "Sub"})


@mutation
def every_scale_is_uniform(patch: Patch) -> None:
    patch.setattr(zero_mean_writers, "uniform", lambda _: True)


@mutation
def biases_of_norms_keep_their_mean(patch: Patch) -> None:
    patch.setattr(centre_plan, "centred_bias", lambda norm, _axes: norm.bias)


@mutation
def masks_may_choose_channels(patch: Patch) -> None:
    original = zero_mean_sites.role

    def role(tensor: Any, out: Site) -> Any:
        found = original(tensor, out)
        return ("one", out) if found and not tensor.is_float else found

    for module in (zero_mean_sites, zero_mean_steps):
        patch.setattr(module, "role", role)


@mutation
def channels_may_be_joined(patch: Patch) -> None:
    reader(patch, "Concat", "Slice", by=wide)


def wide(node: Any, out: Site, _: Any) -> Step | None:
    full = []
    for place, tensor in enumerate(node.inputs):
        if tensor.is_float and tensor.rank == len(out.shape):
            full.append((place, Site(tensor, out.first, out.last)))
    return Step(node, tuple(full))


@mutation
def channels_may_be_split(patch: Patch) -> None:
    reader(patch, "Split", "Slice", "Concat", by=wide)
    patch.setattr(
        zero_mean_pins,
        "sites_of_width",
        lambda tensor, _: [Site(tensor, tensor.rank - 1, tensor.rank - 1)] if tensor.rank else [],
    )


@mutation
def reshape_keeps_everything(patch: Patch) -> None:
    patch.setattr(zero_mean_moves, "_same_place", lambda *_: True)


@mutation
def padding_may_shift_channels(patch: Patch) -> None:
    reader(patch, "Pad", by=kept)


@mutation
def every_operator_keeps_channels(patch: Patch) -> None:
    reader(patch, "Relu", "Tanh", by=kept)


@mutation
def casts_to_integers_are_linear(patch: Patch) -> None:
    for module in (types, zero_mean_steps, zero_mean_writers):
        patch.setattr(module, "FLOATS", frozenset(range(30)))


@mutation
def overridable_weights_are_constants(patch: Patch) -> None:
    is_constant, values = Constants.is_constant, Constants.values
    patch.setattr(
        Constants,
        "is_constant",
        lambda self, t: is_constant(self, t) or getattr(t, "default", None) is not None,
    )
    patch.setattr(
        Constants,
        "values",
        lambda self, t: (
            t.default.load()
            if not isinstance(t, Constant) and t.default is not None
            else values(self, t)
        ),
    )


@mutation
def nothing_is_centred_explicitly(patch: Patch) -> None:
    patch.setattr(Edits, "explicit", lambda _self, at: at.tensor)


@mutation
def the_mean_of_everything_is_zero(patch: Patch) -> None:
    patch.setattr(zero_mean_sources.Sources, "_is_zero", lambda *_: True)


@mutation
def every_reader_takes_a_bias(patch: Patch) -> None:
    patch.setattr(
        centre_affine._Folding,
        "into",
        lambda self, *_: (
            self.found.append(
                centre_affine.Fold(self.start.tensor.producer, 0, Change("n", 0, lambda v: v), ())
            )
            is None
        ),
    )


@mutation
def biases_do_not_arrive(patch: Patch) -> None:
    original = centre_affine.added
    patch.setattr(
        centre_affine,
        "added",
        lambda *given: replace(original(*given), apply=lambda values: values + 0),
    )


@mutation
def reversed_channels_keep_their_bias(patch: Patch) -> None:
    patch.setattr(centre_affine._Folding, "keeps_order", lambda *_: True)


@mutation
def what_is_joined_has_the_bias(patch: Patch) -> None:
    patch.setattr(centre_affine._Folding, "is_joined", staticmethod(lambda *_: True))


@mutation
def readers_do_not_make_up_for_a_mean(patch: Patch) -> None:
    patch.setattr(centre_plan, "mean_folds", lambda *_: [])


@mutation
def any_scale_has_a_constant_mean(patch: Patch) -> None:
    patch.setattr(zero_mean_pins, "takes_up", lambda *_: True)


@mutation
def weights_are_not_centred(patch: Patch) -> None:
    patch.setattr(centre, "centred", lambda _: Change("nothing", 2, lambda values: values))


@mutation
def new_biases_keep_their_mean(patch: Patch) -> None:
    patch.setattr(centre, "added_without_mean", lambda *_: ())


@mutation
def every_rms_norm_is_over_the_channels(patch: Patch) -> None:
    patch.setattr(zero_mean_sources, "_scales", lambda norm, _: norm.kind == "RMSNorm")


@mutation
def means_of_one_element_count(patch: Patch) -> None:
    original = Readers._is_mean

    def mean(self: Readers, node: Any, at: Site) -> bool:
        axes = zero_mean_moves.reduced_axes(node, self._constants) or ()
        trivial = all(at.shape[axis % len(at.shape)] == 1 for axis in axes)
        return original(self, node, at) or (node.op == "ReduceMean" and bool(axes) and trivial)

    patch.setattr(Readers, "_is_mean", mean)


@mutation
def siblings_may_be_centred(patch: Patch) -> None:
    patch.setattr(Pins, "of_siblings", lambda *_: None)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_guard_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    if name in FOUND_IN_SOUP and is_wrong(soup(FOUND_IN_SOUP[name])):
        return
    seeds = (FOUND.get(name, 0), *range(MOST))
    assert any(is_wrong(example(seed)) for seed in seeds), f"{name} went unnoticed"


def is_wrong(model: Example) -> bool:
    """Whether a graph computes something else, or the tool falls over itself."""
    try:
        found = outcome(model)
    except Exception:  # noqa: BLE001 - a broken guard may break anything
        return True
    return found.error > EXACT

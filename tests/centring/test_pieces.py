"""Streams are proved, large ones piece by piece, and what is wrong is not."""

from __future__ import annotations

import pytest
from centring.evaluate import run
from centring.random_streams import example
from centring.repairing import CODES, count, distance, repaired

from normlint.context import Settings
from normlint.model import open_model
from normlint.plugins import load_rules
from normlint.repair import Repair, Repaired
from normlint.rewrite import centre
from normlint.rewrite.centre_constants import Change
from normlint.verify import parts

SEEDS = range(24)


def proved(seed: int) -> Repaired:
    rules = [rule for rule in load_rules() if rule.code in CODES]
    settings = Settings(target_opset=23, rms_norm_policy="always")
    return Repair(open_model(example(seed).model.SerializeToString()), rules, settings).run()


@pytest.fixture(params=[parts.LARGE, -1], ids=["whole", "pieces"], autouse=True)
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE", request.param)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_right_is_proved(seed: int) -> None:
    found = proved(seed)
    assert not found.failed
    assert count(found.proto) == count(repaired(example(seed).model).proto)


def test_what_is_wrong_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writer is a piece of its own; one whose weights are not centred is noticed."""
    monkeypatch.setattr(centre, "centred", lambda _: Change("nothing", 2, lambda values: values))
    seeds = (1, 2, 3, 4)
    found = [proved(seed) for seed in seeds]
    assert any(result.failed for result in found)
    for seed, result in zip(seeds, found, strict=True):
        for feeds in example(seed).feeds:
            old, new = run(example(seed).model, feeds), run(result.proto, feeds)
            assert max(map(distance, old, new)) < 1e-7

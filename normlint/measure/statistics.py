"""What is kept of the values that one norm reads: histograms and extremes, never the values."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.normalization import Kind

if TYPE_CHECKING:
    from normlint.normalization import Normalization

    Array = np.ndarray[Any, Any]

LOWEST, HIGHEST, BINS_PER_OCTAVE = -24, 16, 4
"""Binary logarithms that the histograms span, and their resolution."""
_BINS = (HIGHEST - LOWEST) * BINS_PER_OCTAVE
OUTLIER = 6.0
"""A channel whose largest magnitude is so many times the median of all channels is an outlier."""


@dataclass
class Histogram:
    """Counts of magnitudes on a logarithmic scale, and the exact extremes."""

    counts: Array = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    least: float = np.inf
    most: float = 0.0

    def add(self, values: Array) -> None:
        """Count magnitudes."""
        values = np.abs(values[np.isfinite(values)])
        if not values.size:
            return
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        with np.errstate(divide="ignore"):
            place = (np.log2(values) - LOWEST) * BINS_PER_OCTAVE
        bins = np.clip(np.nan_to_num(place, neginf=0.0), 0, _BINS - 1).astype(np.int64)
        self.counts += np.bincount(bins, minlength=_BINS)

    def quantile(self, part: float) -> float:
        """Give the magnitude below which a part of them lies, to a quarter of an octave."""
        total = int(self.counts.sum())
        if not total:
            return 0.0
        reached = int(np.searchsorted(np.cumsum(self.counts), part * total))
        if reached >= _BINS - 1:
            return self.most
        upper = float(2.0 ** (LOWEST + (reached + 1) / BINS_PER_OCTAVE))
        return min(max(upper, self.least), self.most)


@dataclass
class NormStatistics:
    """What one norm saw.

    Magnitudes of channels run along the norm's channel axis: of x, and the extremes of what is
    normalised, (x - mean) / deviation, before scale and bias.
    """

    rows: int = 0
    """Rows that statistics were taken of: tokens of a LayerNorm."""
    low: float = np.inf
    high: float = -np.inf
    ratio: Histogram = field(default_factory=Histogram)
    """|mean| / deviation of each row."""
    deviation: Histogram = field(default_factory=Histogram)
    """Standard deviation of each row, epsilon apart."""
    weighted_mean: float = 0.0
    weight: float = 0.0
    weighted_square: float = 0.0
    channels: Array | None = None
    """Largest magnitude of x in each channel."""
    normalised_low: Array | None = None
    normalised_high: Array | None = None

    @property
    def range(self) -> float:
        """Distance of the least value of x from the largest."""
        return self.high - self.low if self.rows else 0.0

    @property
    def best_constant(self) -> float:
        """The constant nearest to the means, those of quiet rows first: Σ(m/v) / Σ(1/v)."""
        return self.weighted_mean / self.weight if self.weight else 0.0

    @property
    def rest(self) -> float:
        """Root mean square of |mean - best_constant| / deviation over the rows."""
        if not self.rows:
            return 0.0
        left = self.weighted_square - self.weighted_mean * self.best_constant
        return float(np.sqrt(max(left, 0.0) / self.rows))

    @property
    def outliers(self) -> list[int]:
        """Channels of x that are much larger than most."""
        return [] if self.channels is None else outliers_of(self.channels)

    def result(self, scale: Array, bias: Array) -> Array | None:
        """Give the largest magnitude of scale * normalised + bias in each channel."""
        if self.normalised_low is None or self.normalised_high is None:
            return None
        low, high = scale * self.normalised_low + bias, scale * self.normalised_high + bias
        largest: Array = np.maximum(np.abs(low), np.abs(high))
        return largest

    def add(self, x: Array, norm: Normalization) -> None:
        """Take the statistics of one tensor that the norm read; it may hold infinite values."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(x, norm)

    def _add(self, x: Array, norm: Normalization) -> None:
        if norm.axes is None or x.ndim == 0 or not x.size or -min(norm.axes) > x.ndim:
            return
        wide = x.astype(np.float64)
        grouped = _grouped(wide, norm)
        axes = tuple(norm.axes) if grouped is wide else tuple(range(2, grouped.ndim))
        mean = grouped.mean(axes, keepdims=True)
        centre = mean if norm.centred else np.zeros_like(mean)
        variance = np.square(grouped - centre).mean(axes, keepdims=True)
        spread = variance if norm.centred else grouped.var(axes, keepdims=True)
        self.rows += mean.size
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        with np.errstate(divide="ignore", invalid="ignore"):
            self.ratio.add((mean / np.sqrt(spread)).reshape(-1))
        self.deviation.add(np.sqrt(variance).reshape(-1))
        inverse = 1 / np.maximum(spread, np.finfo(np.float64).tiny)
        usable = spread > 0
        self.weighted_mean += float((mean * inverse)[usable].sum())
        self.weighted_square += float((mean * mean * inverse)[usable].sum())
        self.weight += float(inverse[usable].sum())
        normalised = (grouped - centre) / np.sqrt(np.maximum(variance + norm.epsilon, 1e-300))
        self._add_channels(wide, normalised.reshape(wide.shape), norm)

    def _add_channels(self, x: Array, normalised: Array, norm: Normalization) -> None:
        axis = norm.channel_axis
        if axis is None or -axis > x.ndim:
            return
        others = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
        found = (np.abs(x).max(others), normalised.min(others), normalised.max(others))
        if self.channels is None or self.normalised_low is None or self.normalised_high is None:
            self.channels, self.normalised_low, self.normalised_high = found
            return
        if found[0].shape != self.channels.shape:
            return
        self.channels = np.maximum(self.channels, found[0])
        self.normalised_low = np.minimum(self.normalised_low, found[1])
        self.normalised_high = np.maximum(self.normalised_high, found[2])


def outliers_of(magnitudes: Array) -> list[int]:
    """Give the channels whose magnitude is much larger than the median of all."""
    median = float(np.median(magnitudes))
    if median <= 0:
        return []
    return [int(channel) for channel in np.flatnonzero(magnitudes > OUTLIER * median)]


def _grouped(x: Array, norm: Normalization) -> Array:
    """Give x with a row of each group along its second axis, where a norm has groups."""
    groups = norm.groups
    if norm.kind is not Kind.GROUP or groups is None or norm.channels_last or x.ndim < 2:
        return x
    if x.shape[1] % groups or norm.axes != tuple(range(1 - x.ndim, 0)):
        return x
    return x.reshape(x.shape[0], groups, -1)

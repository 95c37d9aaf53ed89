"""What norms see when a model runs on the user's own data."""

from typing import TYPE_CHECKING

from normlint.lazily import names_of

if TYPE_CHECKING:
    from normlint.measure.calibration import Samples, read_samples
    from normlint.measure.comparison import Comparison, Judge
    from normlint.measure.running import Measured, MeasureOnce, measure_norms
    from normlint.measure.statistics import NormStatistics
else:
    __getattr__ = names_of(
        __name__,
        {
            "normlint.measure.calibration": ("Samples", "read_samples"),
            "normlint.measure.comparison": ("Comparison", "Judge"),
            "normlint.measure.running": ("MeasureOnce", "Measured", "measure_norms"),
            "normlint.measure.statistics": ("NormStatistics",),
        },
    )

__all__ = [
    "Comparison",
    "Judge",
    "MeasureOnce",
    "Measured",
    "NormStatistics",
    "Samples",
    "measure_norms",
    "read_samples",
]

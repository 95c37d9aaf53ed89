"""What norms see when a model runs on the user's own data."""

from normlint.measure.calibration import Samples, read_samples
from normlint.measure.comparison import Comparison, Judge
from normlint.measure.document import document
from normlint.measure.running import Measured, MeasureOnce, measure_norms
from normlint.measure.statistics import NormStatistics

__all__ = [
    "Comparison",
    "Judge",
    "MeasureOnce",
    "Measured",
    "NormStatistics",
    "Samples",
    "document",
    "measure_norms",
    "read_samples",
]

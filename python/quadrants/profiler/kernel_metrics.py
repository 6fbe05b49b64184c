"""Re-exports of `quadrants.profiler`."""

from quadrants.profiler import CuptiMetric, get_predefined_cupti_metrics

__all__ = ["CuptiMetric", "get_predefined_cupti_metrics"]

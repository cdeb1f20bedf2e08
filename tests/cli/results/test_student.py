"""The t distribution against SciPy's."""

from __future__ import annotations

import pytest
from scipy import stats

from cli.results.statistics import noncentrality, t_probability, t_quantile

# Those of two runs each (Welch's can be anything from 1 on) to those of ten thousand.
FREEDOMS = (1, 1.0001, 1.5, 2, 2.7, 3, 4, 7.3, 10, 30, 98, 1998, 19998)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("probability", [0.025, 0.5, 0.8, 0.95, 0.975, 0.995])
def test_quantiles(probability: float, freedom: float) -> None:
    expected = float(stats.t.ppf(probability, freedom))
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_the_noncentrality_gives_the_power_that_was_asked_for(freedom: float) -> None:
    critical = t_quantile(0.975, freedom)
    delta = noncentrality(0.2, critical, freedom)
    assert float(stats.nct.cdf(critical, freedom, delta)) == pytest.approx(0.2, abs=1e-8)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_the_probability_with_and_without_noncentrality(freedom: float) -> None:
    for t in (-3.0, 0.0, 0.7, 2.5, 12.0):
        expected = float(stats.t.cdf(t, freedom))
        assert t_probability(t, freedom) == pytest.approx(expected, abs=1e-8)
        for delta in (0.5, 3.0):
            expected = float(stats.nct.cdf(t, freedom, delta))
            assert t_probability(t, freedom, delta) == pytest.approx(expected, abs=1e-8)

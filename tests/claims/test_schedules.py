import pytest

from clearformer.claims.schedules import KINDS, STEPS, WARMUP, follow

NUMBERS = follow()


def test_who_meets_robbins_and_monro():
    """1/k does; 1/√k has squares that sum to a logarithm; whatever stays above 0 has squares that grow with k.

    Stairs that halve the rate have a sum, and go nowhere in the end.
    """
    met = {kind: (line["sum_is_infinite"], line["squares_are_finite"]) for kind, line in NUMBERS["schedules"].items()}
    apart = {"inverse-time": (True, True), "stairs": (False, True)}
    assert met == {kind: apart.get(kind, (True, False)) for kind in KINDS}


def test_rates_and_sums_belong_together():
    for line in NUMBERS["schedules"].values():
        assert len(line["rate"]) == STEPS
        i = NUMBERS["marks"].index(64)
        assert line["sum"][i] == pytest.approx(sum(line["rate"][:64]), rel=64 * 2**-52)  # 64 roundings
        assert max(line["rate"]) <= 1
        assert line["rate"][0] <= 1 / WARMUP

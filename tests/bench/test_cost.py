"""The promise of the inverse, in CPU seconds: they bear other work on the machine."""

from macow.bench.inverse import measure


def test_the_inverse_costs_at_most_half_more_than_forward():
    cost = measure("cifar10", batch_size=16, repeats=2)
    assert cost.inverse.cpu < 1.5 * cost.forward.cpu
    assert cost.forward.cpu < 1.2 * cost.plain.cpu
    assert cost.round_trip_error < 1 / 256

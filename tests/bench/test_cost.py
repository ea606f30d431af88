"""The promise of the inverse, in CPU seconds: they bear other work on the machine."""

from macow.bench.inverse import measure


def test_the_inverse_costs_little_more_than_the_same_layers_forward_in_plain_torch():
    cost = measure("cifar10", batch_size=16, repeats=2)
    assert cost.inverse.cpu < 1.2 * cost.plain.cpu
    assert cost.forward.cpu < 0.9 * cost.plain.cpu
    assert cost.round_trip_error < 1 / 256

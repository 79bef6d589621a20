from clearformer.data.split import place


def test_the_split_is_the_same_on_every_machine() -> None:
    """Golden values: a change here would move sentences between the training and test sets of old runs."""
    coins = [place(f"sentence {i}") < 0.5 for i in range(7)]
    assert coins == [True, False, True, True, True, True, False]


def test_places_are_spread_evenly_and_the_seed_matters() -> None:
    sentences = [f"sentence {i}" for i in range(4001)]
    first, second = ({s for s in sentences if place(s, seed) < 0.1} for seed in (3, -5))
    assert 340 < len(first) < 460
    assert 15 < len(first & second) < 70
    assert all(0 <= place(s) < 1 for s in sentences)

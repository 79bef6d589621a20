from clearformer.data.split import held_out


def test_the_split_is_the_same_on_every_machine() -> None:
    """Golden values: a change here would move sentences between the training and test sets of old runs."""
    coins = [held_out(f"sentence {i}", seed=0, fraction=0.5) for i in range(7)]
    assert coins == [True, False, True, True, True, True, False]


def test_the_share_is_right_and_the_seed_matters() -> None:
    sentences = [f"sentence {i}" for i in range(4001)]
    first, second = ({s for s in sentences if held_out(s, seed, 0.1)} for seed in (3, 5))
    assert 340 < len(first) < 460
    assert 15 < len(first & second) < 70


def test_a_larger_fraction_holds_out_more_of_the_same() -> None:
    sentences = [f"sentence {i}" for i in range(997)]
    small, large = ({s for s in sentences if held_out(s, -7, fraction)} for fraction in (0.05, 0.2))
    assert small < large
    assert not any(held_out(s, 0, 0.0) for s in sentences)
    assert all(held_out(s, 0, 1.0) for s in sentences)

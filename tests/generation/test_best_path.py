import torch

from clearformer.generation.best_path import TimedToken, best_path


def test_repeats_are_dropped_and_then_blanks() -> None:
    """aa-ab-b and padding, where - is the blank, the last of three."""
    path = torch.tensor([0, 0, 2, 0, 1, 2, 1, 0])
    logits = torch.nn.functional.one_hot(path, 3).float()[None]
    assert best_path(logits, torch.tensor([7])) == [
        [TimedToken(0, 0, 2), TimedToken(0, 3, 4), TimedToken(1, 4, 5), TimedToken(1, 6, 7)]
    ]
    assert best_path(logits.expand(2, -1, -1), torch.tensor([2, 8]))[0] == [TimedToken(0, 0, 2)]
    assert best_path(logits[:, 2:3], torch.tensor([1])) == [[]]

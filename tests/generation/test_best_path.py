import torch

from clearformer.generation.best_path import Said, best_path


def test_repeats_are_dropped_and_then_blanks() -> None:
    """aa-ab-b and padding, where - is the blank, the last of three."""
    path = torch.tensor([0, 0, 2, 0, 1, 2, 1, 0])
    logits = torch.nn.functional.one_hot(path, 3).float()[None]
    assert best_path(logits, torch.tensor([7])) == [[Said(0, 0, 2), Said(0, 3, 4), Said(1, 4, 5), Said(1, 6, 7)]]
    assert best_path(logits.expand(2, -1, -1), torch.tensor([2, 8]))[0] == [Said(0, 0, 2)]
    assert best_path(logits[:, 2:3], torch.tensor([1])) == [[]]

import torch

from clearformer.data.batch import IGNORE, Batch


def batch() -> Batch:
    source = torch.arange(2 * 5).view(2, 5)
    labels = torch.tensor([[7, 3, IGNORE], [3, IGNORE, IGNORE]])
    return Batch(source, source > 0, torch.ones(2, 3, dtype=torch.long), labels)


def test_label_tokens_are_counted_on_the_host() -> None:
    assert batch().n_tokens == 3
    assert len(batch()) == 2


def test_moving_takes_every_tensor_and_the_count() -> None:
    moved = batch().to("meta")  # a device that holds no numbers: counting there would raise
    assert moved.n_tokens == 3
    for tensor in (moved.source, moved.source_mask, moved.target, moved.labels):
        assert tensor.device.type == "meta"

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from clearformer.data.batch import IGNORE, Batch, EncoderBatch, ImageBatch, SoundBatch, Tensors, TextBatch

TOKENS = torch.arange(2 * 5).view(2, 5)
LABELS = torch.tensor([[7, 3, IGNORE], [3, IGNORE, IGNORE]])
PAIRS = Batch(TOKENS, TOKENS > 0, torch.ones(2, 3, dtype=torch.long), LABELS)
TEXT = TextBatch(TOKENS, TOKENS + 1, TOKENS // 7, TOKENS % 7)
WHOLE = EncoderBatch(TOKENS, TOKENS > 0, TOKENS // 3, torch.where(TOKENS % 3 == 0, TOKENS, IGNORE), torch.ones(2))


def test_label_tokens_are_counted_on_the_host() -> None:
    assert (PAIRS.n_tokens, TEXT.n_tokens, WHOLE.n_tokens) == (3, 10, 4)
    assert EncoderBatch(TOKENS, classes=torch.ones(2)).n_tokens == 2  # no labels: rows are counted
    assert TextBatch(TOKENS, TOKENS, n_tokens=0).n_tokens == 0


@pytest.mark.parametrize("batch", [PAIRS, TEXT, WHOLE])
def test_moving_takes_every_tensor_and_the_count(batch: Tensors) -> None:
    assert len(batch) == 2
    moved = batch.to("meta")  # a device that holds no numbers: counting there would raise
    assert type(moved) is type(batch)
    assert moved.n_tokens == batch.n_tokens
    for field in fields(batch):
        before, after = getattr(batch, field.name), getattr(moved, field.name)
        if isinstance(before, Tensor):
            assert (after.device.type, after.shape, after.dtype) == ("meta", before.shape, before.dtype)


def test_what_is_absent_stays_absent() -> None:
    moved = TextBatch(TOKENS, TOKENS).to("meta")
    assert moved.documents is None
    assert moved.positions is None


def test_a_blank_image_has_channels_and_is_square() -> None:
    batch = ImageBatch.blank(2, 5, channels=1)
    assert isinstance(batch, ImageBatch)
    assert batch.pixels.shape == (2, 1, 5, 5)
    assert batch.n_tokens == 2


@pytest.mark.parametrize(
    ("batch", "old", "new"),
    [
        (TextBatch.blank(3, 5), "prefix", "context"),
        (TextBatch.blank(3, 5), "goes_on", "continues"),
        (EncoderBatch.blank(3, 5), "asked", "labelled"),
    ],
)
def test_old_names_of_fields_warn(batch: Tensors, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"\.{old} is deprecated: use \w+\.{new}"):
        assert getattr(batch, old) is getattr(batch, new)


SOUND = SoundBatch(torch.randn(7, 11, 3), torch.arange(7) + 5, torch.where(torch.ones(7, 5).cumsum(1) < 3, 2, IGNORE))
IMAGES = ImageBatch(torch.randn(7, 3, 5, 5), torch.arange(7))


@pytest.mark.parametrize("batch", [PAIRS, TEXT, WHOLE, SOUND, IMAGES], ids=lambda batch: type(batch).__name__)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 11])
def test_parts_have_all_rows_and_targets_of_a_batch(batch: Tensors, n: int) -> None:
    parts = batch.split(n)
    assert len(parts) == min(n, len(batch))
    assert sum(part.n_tokens for part in parts) == batch.n_tokens
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for name, value in vars(batch).items():
        if isinstance(value, Tensor) and name != "labelled":
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), value)


def test_labelled_positions_of_a_part_are_counted_from_its_first_row() -> None:
    one, two = WHOLE.split(2)
    assert one.labelled.tolist() == [0, 3]
    assert two.labelled.tolist() == [1, 4]  # 6 and 9
    assert one.labels_per_row == two.labels_per_row == 2
    assert EncoderBatch(TOKENS, classes=torch.ones(2)).split(2)[0].labels_per_row is None

import torch

from clearformer.data.batch import SoundBatch
from clearformer.data.distort import DistortConfig, add_noise, change_speed, intervals, mask_frames
from clearformer.data.sound import SoundConfig, SoundFrontend

B, N = 3, 1009
LENGTHS = torch.tensor([N, 401, 757])


def waves() -> torch.Tensor:
    x = torch.sin(torch.arange(N) * torch.tensor([[0.05], [0.07], [0.11]]))
    return x * (torch.arange(N) < LENGTHS[:, None])


def test_a_faster_tone_is_a_higher_one() -> None:
    speeds = torch.tensor([1.25, 0.8, 1.0])
    y, lengths = change_speed(waves(), LENGTHS, speeds)
    assert lengths.tolist() == [807, 501, 757]
    n = torch.arange(500)
    torch.testing.assert_close(y[0, :500], torch.sin(0.05 * 1.25 * n), atol=1e-3, rtol=0)
    torch.testing.assert_close(y[1, :499], torch.sin(0.07 * 0.8 * n[:499]), atol=1e-3, rtol=0)
    assert y[2, :757].equal(waves()[2, :757])
    assert not y[1, 501:].any()


def test_noise_is_as_much_weaker_as_it_should_be() -> None:
    torch.manual_seed(0)
    x = waves()
    noise = add_noise(x, LENGTHS, torch.tensor([20.0, 0.0, 10.0])) - x
    for row, (n, db) in enumerate(zip(LENGTHS.tolist(), (20.0, 0.0, 10.0))):
        ratio = x[row, :n].square().mean() / noise[row, :n].square().mean()
        assert abs(10 * ratio.log10() - db) < 0.5
        assert not noise[row, n:].any()


def test_stretches_are_as_many_and_as_wide_as_said() -> None:
    torch.manual_seed(0)
    struck = intervals(53, torch.full((500,), 47), 2, 11)
    assert struck.sum(1).max() <= 22
    assert struck[:, 47:].any()  # one may begin at the end and go beyond
    assert 7 < struck.sum(1).float().mean() < 11
    frames = torch.ones(B, 29, 7)
    out = mask_frames(frames, torch.tensor([29, 11, 17]), 1, 5, 1, 3)
    for row in out:
        times, bands = (row == 0).all(1), (row == 0).all(0)
        assert row[~times][:, ~bands].all()
    assert mask_frames(frames, torch.tensor([29, 11, 17]), 0, 5, 0, 3).equal(frames)


def test_only_a_training_distorts_and_the_seed_decides() -> None:
    how = DistortConfig(speed=1.2, snr=(5, 20), time_masks=1, band_masks=1)
    ear = SoundFrontend(SoundConfig(rate=8000, n_mels=11, distort=how))
    batch = SoundBatch((waves() * 2**14).short(), LENGTHS)
    plain = ear.eval()(batch)
    assert plain.sounds.equal(ear(batch).sounds)
    assert ear(plain) is plain  # frames pass
    torch.manual_seed(1)
    first = ear.train()(batch)
    second = ear(batch)
    torch.manual_seed(1)
    assert first.sounds.equal(ear(batch).sounds)
    assert first.lengths.tolist() != second.lengths.tolist()
    assert (first.lengths - plain.lengths).abs().max() <= 3

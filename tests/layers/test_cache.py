import torch
from torch import Tensor

from clearformer.layers.cache import DecodeState, KVCache, RecurrentState
from clearformer.layers.masks import Mask

B, G, K, N = 3, 2, 5, 7
CPU = torch.device("cpu")


def keys_values(n: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    return torch.randn(B, G, n, K), torch.randn(B, G, n, N)


def seen(mask: Mask | None) -> list[list[list[int]]]:
    assert mask is not None
    return mask.dense(0, 0, CPU)[:, 0].int().tolist()  # the tree knows its own sizes


# KVCache


def test_all_that_was_appended_comes_back_in_order_past_the_capacity() -> None:
    cache = KVCache(capacity=2)
    pieces = [keys_values(n) for n in (1, 3, 2, 11)]
    for i, (k, v) in enumerate(pieces):
        all_k, all_v = cache.append(k, v)
        assert all_k.equal(torch.cat([k for k, _ in pieces[: i + 1]], dim=2))
        assert all_v.equal(torch.cat([v for _, v in pieces[: i + 1]], dim=2))
    assert cache.length == 17
    assert cache.capacity == 19


def test_a_buffer_with_room_is_written_in_place() -> None:
    cache = KVCache(capacity=7)
    first, _ = cache.append(*keys_values(2))
    second, _ = cache.append(*keys_values(5))
    assert first.data_ptr() == second.data_ptr()


def test_rows_that_stay_keep_their_past() -> None:
    cache = KVCache(capacity=3)
    k, v = keys_values(2)
    cache.append(k, v)
    cache.keep(torch.tensor([2, 0]))
    new_k, new_v = (x[:2] for x in keys_values(3))
    all_k, all_v = cache.append(new_k, new_v)
    assert all_k.equal(torch.cat([k[[2, 0]], new_k], dim=2))
    assert all_v.equal(torch.cat([v[[2, 0]], new_v], dim=2))


# DecodeState: the shape of the tree, by hand


def state() -> DecodeState:
    memory = [(torch.arange(B * G * 2 * K).view(B, G, 2, K), torch.arange(B * G * 2 * N).view(B, G, 2, N))]
    return DecodeState(0, CPU, memory, torch.tensor([[1, 1], [1, 0], [1, 1]]).bool())


def test_a_single_path_needs_no_mask() -> None:
    tree = state()
    assert tree.grow(B, 1)[1] is None
    assert tree.grow(B, 1)[1] is None
    assert tree.next.tolist() == [[2]]
    assert tree.slots.tolist() == [[0, 1]]


def test_branches_see_the_trunk_and_themselves() -> None:
    tree = state()
    tree.grow(1, 1)
    tree.reorder(torch.zeros(1, 2, dtype=torch.long))
    assert seen(tree.grow(1, 2)[1]) == [[[1, 1, 0], [1, 0, 1]]]
    assert tree.slots.tolist() == [[0, 1, 1]]


def test_a_rearranged_branch_sees_its_own_path() -> None:
    """Slots: 0 and 1 the two roots; 2, 3, 4 the three that follow; 5 the one that is left."""
    tree = state()
    tree.grow(1, 2)
    tree.reorder(torch.tensor([[1, 0, 1]]))
    assert seen(tree.grow(1, 3)[1]) == [[[0, 1, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]]
    tree.reorder(torch.tensor([[2]]))
    assert seen(tree.grow(1, 1)[1]) == [[[0, 1, 0, 0, 1, 1]]]
    assert tree.slots.tolist() == [[0, 0, 1, 1, 1, 2]]


def test_every_sentence_has_its_own_tree() -> None:
    tree = state()
    tree.grow(2, 2)
    tree.reorder(torch.tensor([[0, 0], [1, 0]]))
    assert seen(tree.grow(2, 2)[1]) == [[[1, 0, 1, 0], [1, 0, 0, 1]], [[0, 1, 1, 0], [1, 0, 0, 1]]]


def test_leaving_sentences_take_their_memory_and_tree_along() -> None:
    tree = state()
    assert tree.memory is not None
    memory, keys = tree.memory[0], tree.memory_keys
    assert keys is not None
    tree.grow(B, 2)
    tree.reorder(torch.tensor([[0, 0], [0, 1], [1, 1]]))
    rows = torch.tensor([2, 1])
    tree.keep(rows)
    assert tree.memory[0][0].equal(memory[0][rows])
    assert tree.memory[0][1].equal(memory[1][rows])
    assert tree.memory_keys is not None
    assert tree.memory_keys.equal(keys[rows])
    assert seen(tree.grow(2, 2)[1]) == [[[0, 1, 1, 0], [0, 1, 0, 1]], [[1, 0, 1, 0], [0, 1, 0, 1]]]


def test_prompts_of_different_lengths_go_on_from_their_own_ends() -> None:
    """Two sentences of 3 and 1 tokens: the padding of the second is on nobody's path."""
    tree = DecodeState(0, CPU)
    tree.read(3, torch.tensor([[1, 1, 1], [1, 0, 0]]).bool())
    where, mask = tree.grow(2, 2)
    assert where.tolist() == [[3, 3], [1, 1]]
    assert seen(mask) == [[[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], [[1, 0, 0, 1, 0], [1, 0, 0, 0, 1]]]
    tree.keep(torch.tensor([1]))
    where, _ = tree.grow(1, 2)
    assert where.tolist() == [[2, 2]]
    assert tree.slots.tolist() == [[0, 1, 2, 1, 1, 2, 2]]


def test_prompts_of_one_length_need_no_mask() -> None:
    tree = DecodeState(0, CPU)
    tree.read(3, None)
    where, mask = tree.grow(2, 1)
    assert (where.tolist(), mask) == ([[3]], None)


# RecurrentState


def test_vectors_follow_their_branches_and_leave_with_their_sentences() -> None:
    """Two layers of three sentences; each vector says its sentence, the branch it came from, and its layer."""
    memory = torch.arange(B)[:, None]
    state = RecurrentState(torch.zeros(2, B, 1, K), memory, None)
    assert state.expanded(4).shape == (2, B, 4, K)
    layers, rows, branches = torch.meshgrid(torch.arange(2), torch.arange(B), torch.arange(2), indexing="ij")
    state.vectors = (100 * rows + 10 * branches + layers)[..., None].expand(-1, -1, -1, K)
    state.reorder(torch.tensor([[1, 1, 0], [0, 0, 1], [1, 0, 1]]))
    assert state.vectors[0, :, :, 0].tolist() == [[10, 10, 0], [100, 100, 110], [210, 200, 210]]
    assert state.vectors[1].equal(state.vectors[0] + 1)
    state.keep(torch.tensor([2, 0]))
    assert state.vectors[0, :, :, 3].tolist() == [[210, 200, 210], [10, 10, 0]]
    assert state.memory[0] is not None
    assert (state.memory[0].tolist(), state.memory[1]) == ([[2], [0]], None)

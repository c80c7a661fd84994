"""Growing buffers equal `torch.cat`, whichever state is continued and however often."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.core.state import MIN_CAPACITY, append, last_elements, select_rows


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_tree_of_states_equals_copies(data: st.DataObject) -> None:
    """Any state may be continued, cut or reordered at any time; the others never change."""
    dim = data.draw(st.sampled_from([1, 2]))
    shape = [3, 2, 2]
    shape[dim] = data.draw(st.integers(0, 5))
    first = torch.randn(shape)
    states = [(first, first.clone())]
    with torch.no_grad():
        for _ in range(data.draw(st.integers(1, 30))):
            ours, plain = data.draw(st.sampled_from(states[-4:]))
            move = data.draw(st.sampled_from(["append", "append", "append", "last", "rows"]))
            if move == "append":
                shape = list(plain.shape)
                shape[dim] = data.draw(st.sampled_from([1, 2, MIN_CAPACITY + 1]))
                new = torch.randn(shape)
                states.append((append(ours, new, dim), torch.cat([plain, new], dim)))
            elif move == "last":
                size = data.draw(st.integers(0, plain.shape[dim]))
                states.append(
                    (last_elements(ours, size, dim), plain.narrow(dim, plain.shape[dim] - size, size).clone())
                )
            else:
                count = data.draw(st.integers(1, 4))
                rows = torch.tensor(data.draw(st.lists(st.integers(0, len(plain) - 1), min_size=count, max_size=4)))
                states.append((select_rows(ours, rows), plain[rows]))
            assert all(torch.equal(a, b) for a, b in states)


def test_steps_write_into_unused_capacity() -> None:
    """Memory is allocated about as often as the length doubles, also after a selection of rows."""
    pointers = set()
    with torch.inference_mode():
        x = torch.zeros(2, 1, 4)
        for step in range(1000):
            x = append(x, torch.full((2, 1, 4), float(step)), dim=1)
            pointers.add(x.data_ptr())
            if step == 500:
                x = select_rows(x, torch.tensor([1, 0]))
    assert len(pointers) <= 7
    assert x[0, :, 0].tolist() == [0.0, *range(1000)]


def test_gradients_flow_as_through_a_copy() -> None:
    past, new = torch.randn(2, 3, requires_grad=True), torch.randn(2, 1, requires_grad=True)
    append(append(past, new, 1), new, 1).square().sum().backward()
    assert past.grad is not None
    assert new.grad is not None
    torch.testing.assert_close(past.grad, 2 * past)
    torch.testing.assert_close(new.grad, 4 * new)


def test_states_of_inference_mode_can_be_continued_outside() -> None:
    with torch.inference_mode():
        x = append(torch.zeros(1, 2), torch.ones(1, 1), 1)
    with torch.no_grad():
        assert append(x, torch.ones(1, 1), 1).tolist() == [[0, 0, 1, 1]]

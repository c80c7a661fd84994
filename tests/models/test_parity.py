"""Against trusted implementations, with copied weights: torch.nn for the recurrent layers, transformers for GPT."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from helpers import copy_recurrent
from seriatim.core import registry
from seriatim.models import gru, lstm, rnn
from seriatim.models.gpt import GPT
from seriatim.models.gru import GRUCell
from seriatim.models.lstm import LSTMCell
from seriatim.models.mlp import WindowMLP
from seriatim.models.rnn import RNNCell
from seriatim.models.tcn import TCN
from seriatim.nn.attention import attention, attention_with_weights, causal_mask, masked_softmax
from seriatim.nn.network import Network, TokenHead, TokenInput
from seriatim.nn.recurrent import scan


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("ours", "theirs", "extra", "torch_extra"),
    [
        (rnn, nn.RNN, {}, {}),
        (rnn, nn.RNN, {"activation": "relu"}, {"nonlinearity": "relu"}),
        (lstm, nn.LSTM, {}, {}),
        (gru, nn.GRU, {"reset": "after"}, {}),
    ],
    ids=["rnn-tanh", "rnn-relu", "lstm", "gru-after"],
)
def test_recurrent_layers_equal_torch(
    ours: Any, theirs: Any, extra: Any, torch_extra: Any, layers: int, bidirectional: bool
) -> None:
    torch.manual_seed(0)
    peer = theirs(5, 7, layers, batch_first=True, bidirectional=bidirectional, **torch_extra).double()
    settings = ours.Settings(name="peer", width=7, layers=layers, bidirectional=bidirectional, **extra)
    model = settings.build(5, 9).double()
    copy_recurrent(model, peer)
    x = torch.randn(3, 9, 5, dtype=torch.float64)
    y, states = model(x)
    expected, last = peer(x)
    torch.testing.assert_close(y, expected)
    parts = last if isinstance(last, tuple) else (last,)
    for index, state in enumerate(states):
        for part, peer_part in zip(state, parts, strict=True):
            torch.testing.assert_close(part, peer_part[index])
    # ragged rows against torch's packing
    lengths = [9, 4, 1]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    unpacked, _ = nn.utils.rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    torch.testing.assert_close(model(x, mask)[0], unpacked)
    # and the gradients
    weight = torch.randn_like(y)
    (model(x)[0] * weight).sum().backward()
    (peer(x)[0] * weight).sum().backward()
    torch.testing.assert_close(model.cells[0].recurrent.grad, peer.weight_hh_l0.grad)


@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_fast_path_equals_the_equations(kind: str, reset: Any, reverse: bool) -> None:
    torch.manual_seed(0)
    cells = {"rnn": RNNCell(4, 6), "lstm": LSTMCell(4, 6), "gru": GRUCell(4, 6, reset)}
    cell = cells[kind].double()
    x = torch.randn(3, 8, 4, dtype=torch.float64)
    mask = torch.arange(8) < torch.tensor([8, 5, 2])[:, None]
    state = tuple(torch.randn(3, 6, dtype=torch.float64) for _ in range(cell.state_tensors))
    for padding in (None, mask):
        y, last = cell(x, padding, state, reverse)
        expected, expected_last = scan(cell, cell.input(x), state, padding, reverse)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(last, expected_last)


def test_two_products_are_one_of_the_stacked_weights() -> None:
    """X W_xh + H W_hh = [X;H] [W_xh;W_hh]."""
    torch.manual_seed(0)
    cell = RNNCell(4, 6).double()
    x, h = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    stacked = torch.cat([cell.input.weight, cell.recurrent], dim=1)
    expected = torch.tanh(torch.cat([x, h], dim=1) @ stacked.T + cell.input.bias)
    torch.testing.assert_close(cell.step(cell.input(x), (h,))[0][0], expected)


def test_open_forget_gate_and_closed_input_gate_keep_the_cell_for_ever() -> None:
    cell = LSTMCell(4, 6).double()
    with torch.no_grad():
        cell.input.weight.zero_()
        cell.recurrent.zero_()
        cell.input.bias[:6] = -1e3  # I = 0
        cell.input.bias[6:12] = 1e3  # F = 1
    c = torch.randn(2, 6, dtype=torch.float64)
    _, (_, kept) = cell(torch.randn(2, 500, 4, dtype=torch.float64), None, (torch.zeros_like(c), c))
    assert torch.equal(kept, c)


def test_gru_skips_where_z_is_one_and_is_an_rnn_where_r_is_one_and_z_zero() -> None:
    torch.manual_seed(0)
    cell, plain = GRUCell(4, 6).double(), RNNCell(4, 6).double()
    h, x = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 9, 4, dtype=torch.float64)
    with torch.no_grad():
        cell.input.weight[:12] = 0
        cell.recurrent[:12] = 0
        cell.input.bias[6:12] = 1e3  # Z = 1
    torch.testing.assert_close(cell(x, None, (h,))[1][0], h)
    with torch.no_grad():
        cell.input.bias[:6], cell.input.bias[6:12] = 1e3, -1e3  # R = 1, Z = 0
        plain.input.weight.copy_(cell.input.weight[12:])
        plain.input.bias.copy_(cell.input.bias[12:])
        plain.recurrent.copy_(cell.recurrent[12:])
    torch.testing.assert_close(cell(x, None, (h,))[0], plain(x, None, (h,))[0])


def test_the_gradient_of_a_shared_weight_is_the_sum_over_steps() -> None:
    """∂J/∂w = Σ_k ∂J/∂h_T (Π_{j=k+1..T} ∂h_j/∂h_{j−1}) ∂h_k/∂w, term by term for one unit."""
    cell = RNNCell(1, 1).double()
    x = torch.randn(1, 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y, (h,) = cell(x, None, None)
    h.sum().backward()
    w = cell.recurrent.item()
    states = [0.0, *y[0, :, 0].tolist()]
    slope = [1 - state**2 for state in states]
    total = 0.0
    for k in range(1, 6):
        way = 1.0
        for j in range(k + 1, 6):
            way *= slope[j] * w
        total += way * slope[k] * states[k - 1]
    assert cell.recurrent.grad is not None
    assert cell.recurrent.grad.item() == pytest.approx(total, rel=1e-12)


def test_tcn_sees_exactly_its_receptive_field() -> None:
    torch.manual_seed(0)
    tcn = TCN(3, 8, levels=3, kernel=3).double().eval()
    assert tcn.receptive_field == 1 + 2 * 2 * (1 + 2 + 4)
    x = torch.randn(1, 60, 3, dtype=torch.float64, requires_grad=True)
    for _ in range(20):  # relu may cut a way by chance: look at several inputs
        y, _ = tcn(x)
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
        seen = gradient[0].abs().sum(dim=1).nonzero().min().item()
        assert 60 - seen <= tcn.receptive_field
        if 60 - seen == tcn.receptive_field:
            return
        x = torch.randn(1, 60, 3, dtype=torch.float64, requires_grad=True)
    pytest.fail("the farthest element was never seen")


def test_causal_convolution_equals_pad_and_chomp_with_weight_norm() -> None:
    torch.manual_seed(0)
    conv = TCN(3, 8, levels=1, kernel=3).double().blocks[0].first
    peer = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 8, 3, padding=2)).double()
    with torch.no_grad():
        peer.parametrizations.weight.original0.copy_(conv.gain[:, None, None])
        peer.parametrizations.weight.original1.copy_(conv.direction)
        peer.bias.copy_(conv.bias)
    x = torch.randn(2, 10, 3, dtype=torch.float64)
    torch.testing.assert_close(conv(x, None, None)[0], peer(x.transpose(1, 2))[:, :, :-2].transpose(1, 2))


def test_window_mlp_is_one_product_of_the_concatenated_window() -> None:
    torch.manual_seed(0)
    mlp = WindowMLP(3, [7], window=4).double()
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    y, _ = mlp(x)
    window = x[:, 2:6].flatten(1)  # the elements 2…5, oldest first
    torch.testing.assert_close(y[:, 5], torch.tanh(mlp.layers[0](window)))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_paths_are_equal(causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 6, 4, dtype=torch.float64) for _ in range(3))
    mixed, weights = attention_with_weights(q, k, v, causal=causal)
    torch.testing.assert_close(mixed, attention(q, k, v, causal=causal))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 6, dtype=torch.float64))
    if causal:
        assert (weights.masked_select(~causal_mask(6, 6)) == 0).all()


def test_masked_softmax() -> None:
    scores = torch.tensor([[112.0, 96.0]]) / 8
    torch.testing.assert_close(masked_softmax(scores, None), torch.tensor([[0.8808, 0.1192]]), rtol=0, atol=1e-4)
    visible = torch.tensor([[True, False, True], [False, False, False]])
    weights = masked_softmax(torch.zeros(2, 3), visible)
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_gpt_logits_equal_transformers() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = GPT2Config(vocab_size=50, n_positions=16, n_embd=12, n_layer=3, n_head=2, attn_implementation="eager")
    peer = GPT2LMHeadModel(shape).double().eval()
    table = TokenInput(50, 12)
    ours = Network(table, GPT(12, 12, 3, 2, context_length=16), TokenHead(12, 50, tied_to=table)).double().eval()
    names = {"attn.c_attn": "attention.inputs", "attn.c_proj": "attention.output", "ln_1": "attention_norm"}
    names |= {"mlp.c_fc": "feedforward.hidden", "mlp.c_proj": "feedforward.output", "ln_2": "feedforward_norm"}
    with torch.no_grad():
        for parameter in peer.parameters():  # nothing at its initial zero or one
            parameter += 0.1 * torch.randn_like(parameter)
        table.weight.copy_(peer.transformer.wte.weight)
        ours.backbone.positions.weight.copy_(peer.transformer.wpe.weight)
        ours.backbone.norm.load_state_dict(peer.transformer.ln_f.state_dict())
        for block, other in zip(ours.backbone.blocks, peer.transformer.h, strict=True):
            for theirs, mine in names.items():
                source, target = other.get_submodule(theirs), block.get_submodule(mine)
                matrix = source.weight if source.weight.dim() == 1 else source.weight.T  # Conv1D stores it turned
                target.weight.copy_(matrix)
                target.bias.copy_(source.bias)
    tokens = torch.randint(0, 50, (2, 13))
    torch.testing.assert_close(ours(tokens)[0], peer(tokens).logits)
    first, state = ours(tokens[:, :5])
    second, _ = ours(tokens[:, 5:], None, state)
    torch.testing.assert_close(torch.cat([first, second], 1), peer(tokens).logits)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_memory_is_how_long_a_unit_keeps_what_it_holds(name: str) -> None:
    """Without input, 300 steps leave most of the content of some units and little of others; by default nothing."""
    settings = registry.models.load(name).Settings
    kept = {}
    for memory in (None, 400):
        torch.manual_seed(0)
        backbone = settings(name=name, width=200, memory=memory).build(2, 10)
        backbone.cells[0].recurrent.data.zero_()  # the gates by their biases alone
        state = [tuple(torch.ones(1, 200) for _ in range(backbone.cells[0].state_tensors))]
        _, after = backbone(torch.zeros(1, 300, 2), None, state)
        kept[memory] = after[0][-1].abs().squeeze()
    assert kept[None].max() < 1e-6
    assert 0.05 < (kept[400] > 0.3).float().mean() < 0.6
    assert (kept[400] < 0.05).float().mean() > 0.1


def test_a_new_lstm_keeps_its_cell() -> None:
    """The forget gate starts at 1, or with biases for a memory of so many steps; the input gate then closes alike."""
    plain = LSTMCell(3, 4)
    assert torch.equal(plain.input.bias[4:8], torch.ones(4))
    assert not plain.input.bias[:4].eq(1).any()
    long = LSTMCell(3, 4, memory=100)
    assert torch.equal(long.input.bias[:4], -long.input.bias[4:8])
    assert long.input.bias[4:8].max() <= math.log(100)


def test_the_linear_model_is_autoregression_with_51_parameters() -> None:
    """A forecast of one value from 50 is a weighted sum and a bias; a padded or short past counts as zeros."""
    settings = registry.models.load("linear").Settings(name="linear", window=50)
    head = nn.Linear(50, 1).double()
    x = torch.randn(4, 60, 1, dtype=torch.float64)
    y = head(settings.build(1, 60).double()(x)[0])
    assert sum(parameter.numel() for parameter in head.parameters()) == 51
    assert not list(settings.build(1, 60).parameters())
    torch.testing.assert_close(y[:, -1], x[:, 10:, 0] @ head.weight.T + head.bias)
    torch.testing.assert_close(y[:, 1], x[:, :2, 0] @ head.weight[:, -2:].T + head.bias)


def test_layers_of_unequal_width_equal_torch() -> None:
    torch.manual_seed(0)
    model = rnn.Settings(name="rnn", widths=[20, 20, 1]).build(1, 9).double()
    peers = [nn.RNN(inputs, width, batch_first=True).double() for inputs, width in ((1, 20), (20, 20), (20, 1))]
    for cell, peer in zip(model.cells, peers, strict=True):
        with torch.no_grad():
            cell.input.weight.copy_(peer.weight_ih_l0)
            cell.input.bias.copy_(peer.bias_ih_l0 + peer.bias_hh_l0)
            cell.recurrent.copy_(peer.weight_hh_l0)
    x = expected = torch.randn(3, 9, 1, dtype=torch.float64)
    for peer in peers:
        expected, _ = peer(expected)
    torch.testing.assert_close(model(x)[0], expected)
    assert sum(parameter.numel() for parameter in model.parameters()) == 440 + 820 + 22


def test_widths_decide_width_and_layers_and_scale_with_a_budget() -> None:
    settings = lstm.Settings(name="lstm", widths=[20, 10])
    assert (settings.width, settings.layers) == (10, 2)
    assert settings.with_width(30).widths == (60, 30)
    assert lstm.Settings(**settings.model_dump()) == settings

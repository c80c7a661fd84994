"""Captions: what is asked of attention in all, what a place of the grid sees, and what a captioner is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import seriatim
from contract.test_captions import captioned, prepared
from seriatim import api
from seriatim.core import registry
from seriatim.core.state import select
from seriatim.models import lstm
from seriatim.tasks._encoders import encoder
from seriatim.tasks.caption import unevenness

PHOTOS = {"model": {"width": 6}, "task": {"channels": 4, "beams": 2}, "train": {"steps": 2, "batch": 4}}


def test_the_penalty_by_hand() -> None:
    """Σ_i (1 − Σ_t α_{t,i})², and the weights of padding have no part in it."""
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]]])
    real = torch.tensor([[True, True, False]])
    assert unevenness(weights, real).tolist() == [pytest.approx((1 - 1.5) ** 2 + (1 - 0.5) ** 2)]
    even = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert unevenness(even, torch.ones(1, 2, dtype=torch.bool)).tolist() == [0.0]


def test_a_batch_of_captions_is_penalised_for_where_it_looked(tmp_path: Path) -> None:
    config, task = prepared(("showattend", {}), tmp_path)
    network, batch = task.build(config.model).eval(), task.batch(0, 0, 4, 4)
    task.settings = task.settings.model_copy(update={"penalty": 0.0})
    plain, _ = task.loss(network, batch, None, 0.0)
    task.settings = task.settings.model_copy(update={"penalty": 2.0})
    penalised, _ = task.loss(network, batch, None, 0.0)
    pictures, given, owners = batch.inputs
    trace: dict[str, Any] = {}
    network.decode(given, select(network.encode(pictures), owners), None, trace)
    wanted = 2.0 * unevenness(trace["alignment"], batch.targets >= 0).sum()
    torch.testing.assert_close(penalised - plain, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "seen"), [("local", 21), ("resnet", 47)])
def test_how_far_a_place_sees(name: Any, seen: int) -> None:
    """The pixels that a place in the middle depends on, along a side."""
    torch.manual_seed(0)
    made = encoder(name, lstm.Settings(name="lstm"), (3, 64, 64), None, None).double().eval()
    picture = torch.rand(1, 3, 64, 64, dtype=torch.float64, requires_grad=True)
    assert made.grid == (8, 8)
    made(picture)[0, 3 * 8 + 3].sum().backward()
    assert picture.grad is not None
    felt = picture.grad[0].abs().sum(dim=0) > 0
    for axis in (0, 1):
        places = felt.any(dim=axis).nonzero()[:, 0]
        assert int(places[-1] - places[0]) + 1 == seen


def test_encoders_of_photographs() -> None:
    model = lstm.Settings(name="lstm")
    assert encoder(None, model, (3, 224, 224), None, None).grid == (7, 7)
    assert encoder("local", model, (3, 224, 224), None, 8).grid == (14, 14)
    assert encoder("patches", model, (3, 224, 224), None, None).grid == (8, 8)
    with pytest.raises(seriatim.SeriatimError, match="6n\\+2"):
        encoder("local", model, (3, 32, 32), 9, None)


def test_a_captioner_is_asked(tmp_path: Path) -> None:
    run = seriatim.train("caption", str(captioned(tmp_path)), "showtell", settings=PHOTOS, out=tmp_path / "run")
    picture = tmp_path / "3.png"
    text = run.caption(picture)
    assert run.caption([picture, picture]) == [text, text]
    large = np.repeat(
        np.repeat(np.asarray(Image.open(picture)), 3, axis=0), 3, axis=1
    )  # brought to the size that it knows
    assert run.caption(large) == text
    several = run.caption(picture, nbest=3)
    assert several[0] == text
    assert len(several) == 3
    with pytest.raises(seriatim.SeriatimError) as caught:
        run.captions([picture])[0][0].attention  # noqa: B018
    assert caught.value.code == "model.no-attention"
    with pytest.raises(seriatim.SeriatimError) as caught:
        run.caption(tmp_path / "nowhere.png")
    assert "nowhere.png" in caught.value.cause
    with pytest.raises(seriatim.SeriatimError, match="cannot be asked to translate"):
        run.translate("a text")


def test_pictures_whose_captions_tell_sides_are_never_mirrored(tmp_path: Path) -> None:
    _, task = prepared(("showtell", {}), tmp_path)
    part = task.parts["train"]
    task.flips = True
    told = part.examples.targets
    turned = set()
    for step in range(40):
        shown, _, _ = task.batch(step, 0, 8, 8).inputs
        for picture, which in zip(shown.numpy(), task.rows(step, 8).tolist(), strict=True):
            rows = part.groups[which]
            if not np.array_equal(picture.transpose(1, 2, 0), part.inputs[int(rows[0])]):
                turned.add(which)
                assert not any("left" in told[row] or "right" in told[row] for row in rows)
    assert turned


def test_long_captions_are_told_and_not_trained_on(tmp_path: Path) -> None:
    _, whole = prepared(("showtell", {}), tmp_path)
    told: list[str] = []
    source = str(tmp_path / "captions.csv")
    for longest, left in ((6, "not trained on"), (1, "raise data.longest")):
        settings = {"model": {"name": "showtell", "width": 6}, "data": {"longest": longest}}
        config = api.configure("caption", source, None, settings)
        try:
            task = registry.tasks.load("caption").prepare(config, notify=told.append)
        except seriatim.SeriatimError as error:
            told.append(error.remedy)
        assert any(left in one for one in told)
    assert 0 < len(task.parts["train"]) < len(whole.parts["train"])
    assert int(task.parts["train"].targets.lengths.max()) <= 6

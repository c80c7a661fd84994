"""What the validation split decides after training: the share of the network, and prediction intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from ...report.significance import ALPHA, format_p, t_tails
from .backtest import Forecasts, forecast_metrics, median_index, window_errors
from .encoded import HeldOut, SeriesEncoded
from .forecasting import forecast_origins
from .intervals import MAX_ORIGINS, KnownErrors, calibration_errors

if TYPE_CHECKING:
    from .task import ForecastTask

NETWORK_SHARES = (0.25, 0.5, 0.75, 1.0)  # of the network's difference to the anchor that are compared


def choose_share(task: ForecastTask, network: nn.Module, validation: SeriesEncoded) -> tuple[float, str, str]:
    """Returns the factor of the network beside its anchor, why that is 0 ("" if it is not), and a note on both.

    The share with the lowest MASE counts if a t-test over the forecasts finds it better than the anchor.
    """
    processor = task.processor
    origins = validation.backtest(None)  # forecasts that do not overlap, for the test
    anchor, full = (forecast_origins(task, n, validation, origins) for n in (None, network))
    # A recursive forecast is no linear function of the outputs: all or nothing.
    shares = (0.0, *(NETWORK_SHARES if task.settings.mode == "direct" else NETWORK_SHARES[-1:]))
    mase, windows = {}, {}
    for share in shares:
        forecasts = Forecasts(validation.unscale(origins, anchor + share * (full - anchor)))
        mase[share] = forecast_metrics(processor, validation, origins, forecasts).get("mase", np.inf)
        windows[share] = window_errors(processor, validation, origins, forecasts)
    best = min(shares[1:], key=lambda share: mase[share])
    gains = windows[0.0] - windows[best]
    gains = gains[~np.isnan(gains)]
    chance = 1.0  # a standard error of two or three forecasts is hardly known: Student's t, one-sided
    if len(gains) > 1 and gains.mean() > 0:
        standard_error = max(float(gains.std(ddof=1) / np.sqrt(len(gains))), np.finfo(float).tiny)
        chance = t_tails(float(gains.mean()) / standard_error, len(gains) - 1) / 2
    on_validation = "on the validation split"
    if mase[best] >= mase[0.0] or chance >= ALPHA:
        figures = f"MASE {mase[best]:.3g} with the network, {mase[0.0]:.3g} without"
        if mase[best] < mase[0.0]:
            figures += f"; {format_p(chance)} over {len(gains)} forecasts" if len(gains) > 1 else "; one forecast"
        unused = f"{on_validation} the network does not improve the anchor by more than chance ({figures})"
        return 0.0, unused, f"the anchor alone is the forecast: {unused}"
    part = "the network" if best == 1.0 else f"{100 * best:.0f} % of the network's difference"
    return (
        best,
        "",
        f"the forecast is the anchor and {part}: MASE {mase[best]:.3g}, without {mase[0.0]:.3g}, {on_validation}",
    )


def known_errors(task: ForecastTask, network: nn.Module, held_out: HeldOut, until_test: bool) -> KnownErrors:
    """Returns the errors of all values that were forecast from the validation split on.

    Args:
        task: The task.
        network: The network.
        held_out: The validation split, and the test split behind it.
        until_test: Whether those of the test split count, too.
    """
    splits = {"validation": held_out.validation}
    if until_test and held_out.test is not None:
        splits["test"] = held_out.test
    parts, middle = [], median_index(task.settings.quantiles)
    for name, encoded in splits.items():
        origins = encoded.every_origin().sample(MAX_ORIGINS)
        forecasts = forecast_origins(task, network, encoded, origins)[..., middle]
        anchors = forecast_origins(task, None, encoded, origins)[..., 0]
        errors = [calibration_errors(task.processor, encoded, origins, scaled) for scaled in (forecasts, anchors)]
        first = origins.positions - encoded.history[origins.series]
        steps = first[:, None] + np.arange(task.settings.horizon)
        if name == "validation":
            steps[:] = -1
        parts.append((*errors, np.repeat(steps, len(task.processor.targets), axis=0)))
    return KnownErrors(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

"""Acceptance maps: when each patch of a picture was fixed, and how often its draft changed.

Knows: pictures with a heat layer over them, and the same averaged over a run on the image grid.
Refuses to know: how drafts were judged; it reads the trace's integers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.report.labels import names_of, window_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]

WHAT = {"fixed_pass": "pass that fixed the token", "changes": "changes of the draft"}
"""Field of a picture's record to what it counts."""
MAX_ROWS, MAX_COLUMNS = 8, 8
HEAT = 0.5
"""Opacity of the heat layer: the picture below stays recognisable."""


def maps_over_pictures(cells: Sequence[Json], pictures: Sequence[Json], what: str) -> Figure | None:
    """Draw ``what`` over each picture: a column a method cell, a row a prompt, one colour bar for all.

    The pictures are grey, so that colour means the map alone. The first eight prompts and cells are shown; ``None``
    where no method cell has a picture. AR has no map: it fixes one token a pass, in raster order.
    """
    from matplotlib.figure import Figure

    shown = [cell for cell in cells if cell.get("method") != "ar" and _traced(cell, pictures)][:MAX_COLUMNS]
    if not shown:
        return None
    records = {(p["cell"], p["prompt"], p["sample"]): p for cell in shown for p in _traced(cell, pictures)}
    keys = list(dict.fromkeys((prompt, sample) for _, prompt, sample in records))[:MAX_ROWS]
    most = max(max(p[what]) for p in records.values() if (p["prompt"], p["sample"]) in keys)
    figure = Figure(figsize=(1.9 + 1.6 * len(shown), 0.5 + 1.62 * len(keys)), layout="constrained")
    axes = figure.subplots(len(keys), len(shown), squeeze=False)
    layer: Any = None
    for row, (prompt, sample) in enumerate(keys):
        for column, cell in enumerate(shown):
            record = records.get((cell["id"], prompt, sample))
            _bare(axes[row][column])
            if record is not None:
                layer = _overlay(axes[row][column], record, what, max(1, most))
        text = next(p["text"] for key, p in records.items() if key[1:] == (prompt, sample))
        caption = "\n".join(textwrap.wrap(" ".join(str(text).split()), 17, max_lines=5, placeholder=" …"))
        axes[row][0].set_ylabel(caption.replace("$", r"\$"), rotation=0, ha="right", va="center", fontsize=7)
    for column, (cell, name) in enumerate(zip(shown, names_of(shown), strict=True)):
        axes[0][column].set_title("\n".join([*textwrap.wrap(name, 20), window_of(cell)]), fontsize=8)
    bar = figure.colorbar(layer, ax=axes, shrink=min(1.0, 2.5 / len(keys)), aspect=16, pad=0.02)
    bar.set_label(WHAT[what], fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def _overlay(axes: Axes, record: Json, what: str, most: int) -> Any:
    import numpy as np
    from PIL import Image

    rows, columns, *frames = record["grid"]
    stacked = rows * (frames[0] if frames else 1)
    extent = (0, columns, stacked, 0)
    path = Path(str(record.get("file")))
    if stacked == rows and path.is_file():
        with Image.open(path) as picture:
            grey = np.asarray(picture.convert("L"))
        axes.imshow(grey, cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="nearest")
    heat = np.asarray(record[what], float).reshape(stacked, columns)
    return axes.imshow(heat, cmap="viridis", vmin=0, vmax=most, alpha=HEAT, extent=extent, interpolation="nearest")


def accepted_positions(accepted: Sequence[int], size: int) -> list[bool]:
    """Tell for every token whether it was an accepted draft or drawn from the target.

    Each pass commits its ``accepted`` drafts and then one token drawn from the target (the residual's draw after a
    rejection, the free one after full acceptance); the last pass may end at the image's last token before that.

    >>> accepted_positions([0, 2, 1], 6)
    [False, True, True, False, True, False]
    """
    flags: list[bool] = []
    for count in accepted:
        flags += [True] * int(count) + [False]
    return flags[:size]


def kept_positions(record: Json, size: int) -> list[bool]:
    """Accepted drafts of a traced picture; where passes repair drafts in place (SSD), those that no pass changed."""
    passes = list(zip(record["accepted"], record["committed"], strict=True))
    if all(committed == accepted + 1 for accepted, committed in passes[:-1]):
        return accepted_positions(record["accepted"], size)
    return [False, *(changes == 0 for changes in record["changes"][1:])]  # the first token has no draft


def acceptance_maps(cells: Sequence[Json], pictures: Sequence[Json]) -> Figure | None:
    """Average over a run, on the image grid, a column a method cell: the share of images whose token was an accepted
    draft, the mean pass at which the token got its final value, and how often its draft changed on the way.
    ``None`` where no trace is at hand.
    """
    from matplotlib.figure import Figure

    shown = [(cell, maps) for cell in cells if cell.get("method") != "ar" and (maps := _means(cell, pictures))]
    shown = shown[:MAX_COLUMNS]
    if not shown:
        return None
    names = names_of([cell for cell, _ in shown])
    figure = Figure(figsize=(1.4 + 2.0 * len(shown), 6.4), layout="constrained")
    axes = figure.subplots(3, len(shown), squeeze=False)
    rows = (("share of accepted drafts", "cividis"), (WHAT["fixed_pass"], "viridis"), (WHAT["changes"], "viridis"))
    for row, (label, colours) in enumerate(rows):
        top = 1.0 if row == 0 else max(float(maps[row].max()) for _, maps in shown) or 1.0
        for column, (_, maps) in enumerate(shown):
            _bare(axes[row][column])
            layer = axes[row][column].imshow(maps[row], vmin=0, vmax=top, cmap=colours)
        axes[row][0].set_ylabel(label, fontsize=8)
        figure.colorbar(layer, ax=axes[row], shrink=0.85, pad=0.01).ax.tick_params(labelsize=7)
    for column, ((cell, _), name) in enumerate(zip(shown, names, strict=True)):
        axes[0][column].set_title("\n".join([*textwrap.wrap(name, 24), window_of(cell)]), fontsize=8)
    return figure


def _traced(cell: Json, pictures: Sequence[Json]) -> list[Json]:
    return [p for p in pictures if p["cell"] == cell["id"] and p.get("fixed_pass") and p.get("accepted") is not None]


def _means(cell: Json, pictures: Sequence[Json]) -> tuple[Any, Any, Any] | None:
    import numpy as np

    traced = _traced(cell, pictures)
    if not traced:
        return None
    rows, columns, *frames = traced[0]["grid"]
    shape = (rows * (frames[0] if frames else 1), columns)
    size = shape[0] * shape[1]
    share = np.mean([kept_positions(p, size) for p in traced], axis=0)
    fixed = np.mean([p["fixed_pass"] for p in traced], axis=0)
    changes = np.mean([p["changes"] for p in traced], axis=0)
    return share.reshape(shape), fixed.reshape(shape), changes.reshape(shape)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])

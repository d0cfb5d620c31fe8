"""The contact sheet: plain AR beside the methods, same prompts, same seeds, one picture.

A column is a cell of the table, a row a prompt; every tile tells its own NFE. Lossless methods need not give the *same*
picture as AR at equal seeds, only one from the same law; the sheet is where an eye can look for the difference.

Knows: tiles, captions, fonts.
Refuses to know: where pictures come from beyond the file named in their record.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

Json = Mapping[str, Any]

TILE = 128
GAP = 12
CAPTION_LINES = 2
TEXT = (28, 28, 30)
FAINT = (110, 110, 115)
PAPER = (255, 255, 255)
EMPTY = (232, 232, 235)
MAX_COLUMNS = 13
MAX_ROWS = 8


def contact_sheet(cells: Sequence[Json], pictures: Sequence[Json], rows: int = MAX_ROWS) -> Image.Image | None:
    """Draw one sheet for cells of one model and seed.

    Args:
        cells: the document's cells, in column order; those beyond ``MAX_COLUMNS`` are left out, AR stays first.
        pictures: records with ``cell``, ``prompt``, ``sample``, ``text``, ``nfe``, ``file``.
        rows: at most so many prompts, the first ones in the records' order.

    Returns:
        The sheet, or ``None`` where there is no picture at all.
    """
    shown = sorted(cells, key=lambda cell: cell.get("method") != "ar")[:MAX_COLUMNS]
    by_place = {(p["cell"], p["prompt"], p["sample"]): p for p in pictures}
    wanted = {cell["id"] for cell in shown}
    keys = list(dict.fromkeys((p["prompt"], p["sample"]) for p in pictures if p["cell"] in wanted))[:rows]
    if not keys:
        return None
    fonts = Fonts()
    row_height = TILE + fonts.line + fonts.line * CAPTION_LINES + GAP
    width = GAP + len(shown) * (TILE + GAP)
    sheet = Image.new("RGB", (width, GAP + 2 * fonts.line + GAP + len(keys) * row_height), PAPER)
    draw = ImageDraw.Draw(sheet)
    for column, cell in enumerate(shown):
        _head(draw, fonts, GAP + column * (TILE + GAP), cell)
    for row, (prompt, sample) in enumerate(keys):
        top = GAP + 2 * fonts.line + GAP + row * row_height
        records = [by_place.get((cell["id"], prompt, sample)) for cell in shown]
        text = next((str(r["text"]) for r in records if r), str(prompt))
        _caption(draw, fonts, (GAP, top), text if sample == 0 else f"{text} (sample {sample})", width - 2 * GAP)
        for column, record in enumerate(records):
            _tile(sheet, draw, fonts, (GAP + column * (TILE + GAP), top + fonts.line * CAPTION_LINES), record)
    return sheet


class Fonts:
    """Two weights of one face that can write more than ASCII, and the height of a line in pixels."""

    def __init__(self) -> None:
        import matplotlib as mpl

        folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
        self.plain = ImageFont.truetype(folder / "DejaVuSans.ttf", 12)
        self.bold = ImageFont.truetype(folder / "DejaVuSans-Bold.ttf", 12)
        self.line = 16


def _head(draw: ImageDraw.ImageDraw, fonts: Fonts, left: int, cell: Json) -> None:
    window = cell.get("window")
    name = str(cell.get("method")) if cell.get("method") == "ar" or window is None else f"{cell['method']}  W={window}"
    nfe = (cell.get("nfe") or {}).get("mean")
    draw.text((left, GAP), _fit(name, fonts.bold, TILE), fill=TEXT, font=fonts.bold)
    draw.text((left, GAP + fonts.line), f"mean NFE {nfe:.1f}" if nfe is not None else "–", fill=FAINT, font=fonts.plain)


def _caption(draw: ImageDraw.ImageDraw, fonts: Fonts, at: tuple[int, int], text: str, width: int) -> None:
    letters = max(12, int(width / fonts.plain.getlength("n")))
    lines = textwrap.wrap(" ".join(text.split()), letters, max_lines=CAPTION_LINES, placeholder=" …") or [
        "(empty prompt)"
    ]
    for i, line in enumerate(lines, CAPTION_LINES - len(lines)):
        draw.text((at[0], at[1] + i * fonts.line), line, fill=TEXT, font=fonts.plain)


def _tile(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, fonts: Fonts, at: tuple[int, int], record: Json | None
) -> None:
    left, top = at
    path = Path(str(record["file"])) if record and record.get("file") else None
    if path is None or not path.is_file():
        draw.rectangle((left, top, left + TILE - 1, top + TILE - 1), fill=EMPTY)
        draw.text((left + 8, top + TILE // 2 - 8), "no picture", fill=FAINT, font=fonts.plain)
        return
    with Image.open(path) as picture:
        tile = picture.convert("RGB")
    # Whole pixels stay whole: what is smaller than a tile is enlarged without smoothing, so artefacts stay visible.
    method = Image.Resampling.NEAREST if max(tile.size) <= TILE else Image.Resampling.LANCZOS
    scale = TILE / max(tile.size)
    tile = tile.resize((max(1, round(tile.width * scale)), max(1, round(tile.height * scale))), method)
    sheet.paste(tile, (left, top))
    if record is not None and record.get("nfe") is not None:
        draw.text((left, top + TILE + 1), f"{record['nfe']} passes", fill=FAINT, font=fonts.plain)


def _fit(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    while font.getlength(text) > width and len(text) > 2:
        text = text[:-2] + "…"
    return text

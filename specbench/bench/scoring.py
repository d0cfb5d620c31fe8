"""Pictures as bytes, and verdicts about them.

Knows: PNG, and that a verdict belongs to the scorer's code: where that changed, pictures are scored again.
Refuses to know: how a picture was decoded and how a scorer decides.
"""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING

from specbench.bench import paths
from specbench.bench.cells import source_hash
from specbench.bench.store import CellWriter, Records
from specbench.errors import SpecbenchError

if TYPE_CHECKING:
    from torch import Tensor

    from specbench.bench.planning import Group

CHUNK = 32


def png(pixels: Tensor) -> bytes:
    """A uint8 picture [3, H, W] as PNG bytes; equal pictures give equal bytes (no clock, no metadata)."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).cpu().numpy()).save(buffer, format="PNG")
    return buffer.getvalue()


@cache
def scorer_code() -> str:
    """Hash of the sources that decide verdicts: scores and the world they judge."""
    files = [file for room in ("scores", "prompts") for file in sorted((paths.PACKAGE / room).rglob("*.py"))]
    return source_hash([(file.relative_to(paths.PACKAGE).as_posix(), file) for file in files])


def score_missing(cell: CellWriter, group: Group) -> None:
    """Score the stored pictures that have no verdict of this scorer yet.

    Raises :class:`SpecbenchError` when a picture that the store names is not there.
    """
    scorer = group.scorer
    if scorer is None:
        return
    unscored = [
        key for key in group.image_keys() if key in cell.images and (*key, scorer, scorer_code()) not in cell.scores
    ]
    for at in range(0, len(unscored), CHUNK):
        chunk = unscored[at : at + CHUNK]
        from specbench.scores import score_images

        pixels = _pixels(cell, [cell.images[key]["file"] for key in chunk])
        verdicts = score_images(scorer, pixels, [group.prompts.metadata[prompt] for prompt, _ in chunk])
        for (prompt, sample), verdict in zip(chunk, verdicts, strict=True):
            cell.append("score", prompt=prompt, sample=sample, scorer=scorer, code=scorer_code(), verdict=verdict)


def _pixels(cell: Records, files: list[str]) -> Tensor:
    """Stored pictures as uint8 [B, 3, H, W]."""
    import numpy as np
    import torch
    from PIL import Image

    arrays = []
    for name in files:
        try:
            with Image.open(cell.folder / name) as picture:
                arrays.append(np.asarray(picture.convert("RGB")))
        except OSError as error:
            raise SpecbenchError(f"the store names a picture that cannot be read: {cell.folder / name}") from error
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()

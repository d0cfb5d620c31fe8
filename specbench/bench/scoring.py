"""Pictures as bytes, and verdicts about them.

Knows: PNG, that tokens draw the same picture again, and that a verdict belongs to the scorer's code: where that
changed, pictures are scored again.
Refuses to know: how a picture was decoded and how a scorer decides.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from specbench.bench import paths
from specbench.bench.cells import source_hash
from specbench.bench.store import CellWriter, Key, Records
from specbench.errors import SpecbenchError

if TYPE_CHECKING:
    from torch import Tensor

    from specbench.bench.planning import Group
    from specbench.decoding.interfaces import Prompt, Target

CHUNK = 32


def decoded(target: Target, tokens: Tensor, prompts: Sequence[Prompt]) -> tuple[Tensor, int | None]:
    """What ``tokens`` [B, N] show: pictures [B, 3, H, W] and None, or videos [B, T, 3, H, W] and frames per second."""
    from specbench.decoding.interfaces import VideoTarget

    if isinstance(target, VideoTarget):
        return target.frames(tokens, prompts), target.frames_per_second
    return target.pixels(tokens), None


def png(pixels: Tensor, rate: int | None = None) -> bytes:
    """A uint8 picture [3, H, W] as PNG bytes; equal pictures give equal bytes (no clock, no metadata).

    With ``rate`` (frames per second) a video [T, 3, H, W] as an animated PNG. What knows no animation shows its last
    frame, and so does whatever here looks at the picture: the first is given and the same for every method.
    """
    from PIL import Image

    buffer = io.BytesIO()
    if rate is None:
        Image.fromarray(pixels.permute(1, 2, 0).cpu().numpy()).save(buffer, format="PNG")
    else:
        still, *frames = (Image.fromarray(x) for x in (f.permute(1, 2, 0).cpu().numpy() for f in (pixels[-1], *pixels)))
        still.save(buffer, "PNG", save_all=True, append_images=frames, default_image=True, duration=1000 / rate, loop=0)
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

        pixels = _pixels(cell, chunk)
        verdicts = score_images(scorer, pixels, [group.prompts.metadata[prompt] for prompt, _ in chunk])
        for (prompt, sample), verdict in zip(chunk, verdicts, strict=True):
            cell.append("score", prompt=prompt, sample=sample, scorer=scorer, code=scorer_code(), verdict=verdict)


def mend_pictures(cell: CellWriter, group: Group) -> int:
    """Draw pictures that are gone or altered again, from the stored tokens; returns how many.

    Another machine may draw another last bit: the new hash is then appended, and replaces that of the image.
    """
    import torch

    damaged, texts = cell.damaged(group.image_keys()), {prompt.id: prompt for prompt in group.items}
    for at in range(0, len(damaged), CHUNK):
        chunk = damaged[at : at + CHUNK]
        tokens = torch.tensor([cell.images[key]["tokens"] for key in chunk], device=group.request.device)
        shown, rate = decoded(group.target, tokens, [texts[prompt] for prompt, _ in chunk])
        for (prompt, sample), pixels in zip(chunk, shown, strict=True):
            picture = cell.picture(prompt, sample, png(pixels, rate))
            if any(cell.images[prompt, sample][name] != value for name, value in picture.items()):
                cell.append("picture", prompt=prompt, sample=sample, **picture)
    return len(damaged)


def _pixels(cell: Records, keys: Sequence[Key]) -> Tensor:
    """Stored pictures as uint8 [B, 3, H, W]."""
    import numpy as np
    import torch
    from PIL import Image

    arrays = []
    for key in keys:
        data = cell.picture_bytes(key)
        if data is None:
            name = cell.folder / cell.images[key]["file"]
            raise SpecbenchError(f"the store names a picture that is gone or altered: {name}; give the command again")
        with Image.open(io.BytesIO(data)) as picture:
            arrays.append(np.asarray(picture.convert("RGB")))
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()

"""Frames in and out of Cosmos: a file to the codes of the given frames, codes to the frames of a video.

Knows: what a prompt may name (a picture, an animation, an array of codes), the TorchScript files of the tokenizer
DV8x16x16 and their signatures, sizes in time and space.
Refuses to know: the transformer, guidance, and how a video is stored.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specbench.errors import SpecbenchError, UsageError

TIME, SIDE = 8, 16
"""Frames per latent frame behind the first (which is one frame alone), pixels per code along a side."""

Shape = tuple[int, int, int]


def pixel_frames(latent: int) -> int:
    """How many frames so many latent ones are.

    >>> pixel_frames(5)
    33
    """
    return TIME * (latent - 1) + 1


def script(path: Path, device: str) -> Any:
    """A TorchScript file, in evaluation mode. Raises ``SpecbenchError`` when it cannot be read."""
    try:
        with warnings.catch_warnings():  # that TorchScript is not the newest format is no news: it is what is published
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(str(path), map_location=device).eval()
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()).split(". ")[0]
        raise SpecbenchError(f"{path} cannot be read as TorchScript: {reason}") from error


def uint8_frames(decoder: Callable[[Tensor], Tensor], codes: Tensor) -> Tensor:
    """Codes [B, T, h, w] to uint8 [B, 8(T-1)+1, 3, 16h, 16w]: ``(x / 2 + 1 / 2) · 255``, clamped and cut off."""
    with torch.jit.optimized_execution(False):  # the second call must not be fused into other last bits than the first
        video = decoder(codes)
    return ((video.float() + 1) * 127.5).clamp(0, 255).to(torch.uint8).movedim(2, 1)


def given_codes(
    text: str, latent: Shape, protocol: Mapping[str, Any], vocab: int, encoder: Callable[[Tensor], tuple[Tensor, ...]]
) -> Tensor:
    """The codes [given · h · w] int64 of the frames that a prompt gives, on the processor.

    ``text`` is the path of a picture or of an animation that Pillow reads, which the encoder turns into codes, or of a
    ``.npy`` array of codes [frames, h, w]. With the protocol's ``noise`` any other text gives codes drawn from its
    hash: enough to check and to time, nothing to look at.
    Raises ``UsageError`` for a text that names no file, ``SpecbenchError`` for a file that does not fit.
    """
    given, rows, columns = int(protocol["given"]), *latent[1:]
    path = Path(text).expanduser()
    if text.strip() and path.is_file():
        codes = _stored(path) if path.suffix == ".npy" else _encoded(path, given, latent, encoder)
        if codes.dim() != 3 or tuple(codes.shape[1:]) != (rows, columns) or len(codes) < given:
            raise SpecbenchError(f"{path} holds codes {list(codes.shape)}; [{given} or more, {rows}, {columns}] needed")
        if int(codes.min()) < 0 or int(codes.max()) >= vocab:
            raise SpecbenchError(f"{path} holds codes outside 0…{vocab - 1}")
        return codes[:given].flatten()
    if not protocol.get("noise"):
        raise UsageError(
            f"this model continues given frames, and {text!r} is no file: name a picture, an animation (GIF, APNG, "
            "WebP) or a .npy array of codes in prompt=…, or one per line in prompts=file prompts.path=…"
        )
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    return torch.randint(vocab, (given * rows * columns,), generator=torch.Generator().manual_seed(seed))


def _stored(path: Path) -> Tensor:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise SpecbenchError(f"{path} cannot be read as an array: {error}") from error
    if array.dtype.kind not in "iu" or array.size == 0:
        raise SpecbenchError(f"{path} holds {array.dtype} {list(array.shape)}, not whole numbers")
    return torch.from_numpy(array.astype(np.int64))


def _encoded(path: Path, given: int, latent: Shape, encoder: Callable[[Tensor], tuple[Tensor, ...]]) -> Tensor:
    """Codes [T, h, w] of a file's first frames.

    The last one is repeated to the length of the whole video, as in the release; the tokenizer is causal in time, so
    that the codes of the given frames do not see it.
    """
    needed, total = pixel_frames(given), pixel_frames(latent[0])
    frames = _pictures(path, needed, (latent[2] * SIDE, latent[1] * SIDE))
    video = torch.stack([*frames, *[frames[-1]] * (total - needed)], 1)[None]
    weight = next(iter(getattr(encoder, "parameters", lambda: iter(()))()), torch.zeros(()))
    with torch.inference_mode(), torch.jit.optimized_execution(False):
        return encoder((video / 127.5 - 1).to(weight))[0][0].long().cpu()


def _pictures(path: Path, count: int, size: tuple[int, int]) -> list[Tensor]:
    """The first ``count`` frames [3, H, W] float32 in 0…255, scaled to cover ``size`` (width, height) and cropped."""
    import numpy as np
    from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            # An APNG may begin with a picture for viewers that show no animation, as ours do; it is no frame.
            first = int(bool(file.info.get("default_image")))
            frames = [
                ImageOps.fit(frame.convert("RGB"), size, Image.Resampling.BICUBIC)
                for frame in islice(ImageSequence.Iterator(file), first, first + count)
            ]
    except (OSError, UnidentifiedImageError) as error:
        raise SpecbenchError(f"{path} cannot be read as a picture or animation: {error}") from error
    if len(frames) < count:
        raise SpecbenchError(
            f"{path} has {len(frames)} of the {count} frames that this protocol gives (model.protocol=image gives one)"
        )
    return [torch.from_numpy(np.array(frame)).permute(2, 0, 1).float() for frame in frames]

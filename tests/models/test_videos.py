"""A video that was written can be continued: its file, given as a prompt, gives the frames that it began with."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("transformers")

import torch
from PIL import Image

from specbench.bench import registry
from specbench.bench.scoring import decoded, png
from specbench.decoding.interfaces import Prompt
from specbench.models.cosmos_frames import given_codes


@pytest.mark.parametrize("given", [1, 2])
def test_what_was_written_begins_with_the_frames_that_were_given(tmp_path, given):
    protocol = {**registry.model("cosmos/tiny").recipe("official"), "given": given}
    target = registry.load_target("cosmos/tiny").follow(protocol)
    tokens = torch.randint(target.vocab, (1, target.grid.size), generator=torch.Generator().manual_seed(3))
    ((video,), rate) = decoded(target, tokens, [Prompt("a", "a red ring")])
    file = tmp_path / "video.png"
    file.write_bytes(png(video, rate))
    with Image.open(io.BytesIO(file.read_bytes())) as opened:
        assert opened.n_frames == 33 + 1, "and the last frame for viewers that show no animation"
    read = given_codes(str(file), target.latent, protocol, target.vocab, target.encoder)
    assert torch.equal(read, target.prefix([Prompt("a", "a red ring")], False).ids[0])

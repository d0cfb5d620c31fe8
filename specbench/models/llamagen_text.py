"""Captions as LlamaGen reads them: cleaned as its training captions were, then encoded by flan-t5-xl.

Knows: the rules of the cleaning, the encoder's files, the length at which captions are cut.
Refuses to know: the model that reads the states, and codes.

LlamaGen (arXiv 2406.06525, section 2.3 and ``language/t5.py`` of its release) keeps 120 text tokens. Its cleaning comes
from web captions: links, file names, product numbers and advertisements go. The rules here are our own writing of it,
and two things are left out, since they would need a package each: repairing broken Unicode, and parsing HTML beyond
dropping tags. On plain captions (lower case, spaces, punctuation) the result is that of the release.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from urllib.parse import unquote_plus

import torch
from torch import Tensor, nn
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Stack

from specbench.errors import SpecbenchError
from specbench.models import checkpoint
from specbench.models.source import Located, described_by, read_json
from specbench.models.words import Words

LENGTH = 120
"""Text tokens of a caption, the end token included."""
END, PAD = "</s>", "<pad>"
FILES = "png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4"
LINKS: tuple[tuple[str, str], ...] = (
    (r"<person>", "person"),
    (r"\b(?:https?:(?:/{1,3}|[a-z0-9%])|[a-z0-9.\-]+\.(?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b/?(?!@))", ""),
    (r"</?[a-z!][^<>]*>", ""),
)
BEFORE: tuple[tuple[str, str], ...] = (
    (r"@\w+\b", ""),
    ("[\u31c0-\u9fff]+", ""),  # strokes to unified ideographs; the blocks between them are all named
    (
        "[-\u058a\u05be\u1400\u1806\u2010-\u2015\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u301c\u3030\u30a0\ufe31\ufe32\ufe58\ufe63\uff0d]+",
        "-",
    ),
    ("[`´«»“”¨]", '"'),
    ("[‘’]", "'"),
    (r"&quot;?|&amp", ""),
    (r"(?:\d{1,3}\.){3}\d{1,3}", " "),
    (r"\d:\d\d\s+$", ""),
    (r"\\n", " "),
    (r"#(?:\d{1,3}|\d{5,})\b|\b\d{6,}\b", ""),
    (rf"\S+\.(?:{FILES})", ""),
    (r"[\"']{2,}", '"'),
    (r"\.{2,}", " "),
    (r"[#®•©™&@·º½¾¿¡§~)(\]\[}{|\\/*]+", " "),
    (r"\s+\.\s+", " "),
)
AFTER: tuple[tuple[str, str], ...] = (
    (r"\b[a-z]{1,3}\d{3,15}\b", ""),
    (r"\b[a-z]+\d+[a-z]+\b", ""),
    (r"\b\d+[a-z]+\d+\b", ""),
    (r"(?:worldwide\s+)?(?:free\s+)?shipping|(?:free\s)?download(?:\sfree)?", ""),
    (r"\bclick\b\s(?:for|on)\s\w+", ""),
    (rf"\b(?:{FILES})(?:\simages?)?|\bpage\s+\d+\b", ""),
    (r"\b\d*[a-z]+\d+[a-z]+\d+[a-z\d]*\b", " "),
    (r"\b\d+\.?\d*[xх×]\d+\.?\d*\b", ""),
    (r"\b\s+:\s+", ": "),
    (r"(\D[,./])\b", r"\1 "),
    (r"\s+", " "),
    (r"^[\"']([\w\W]+)[\"']$", r"\1"),
    (r"^['_,\-:;]", ""),
    (r"['_,\-:+]$", ""),
    (r"^\.\S+$", ""),
)


def clean(caption: str) -> str:
    """A caption as the encoder is given it; the rules run twice, as they did in training.

    >>> clean("A Red_Circle,blue  square (HD) at https://a.com/b")
    'a red_circle, blue square hd at'
    """
    for _ in range(2):
        caption = html.unescape(_replace(unquote_plus(caption).strip().lower(), LINKS))
        caption = _replace(caption, BEFORE)
        if len(re.findall("[-_]", caption)) > 3:
            caption = re.sub("[-_]", " ", caption)
        caption = _replace(html.unescape(html.unescape(caption)).strip(), AFTER).strip()
    return caption


def _replace(text: str, rules: Sequence[tuple[str, str]]) -> str:
    for pattern, by in rules:
        text = re.sub(pattern, by, text)
    return text


class Captions:
    """The encoder of flan-t5-xl, read from the whole T5's files, and its tokenizer.

    Raises ``SpecbenchError`` naming what does not fit.
    """

    def __init__(self, words: Located, dtype: torch.dtype, device: str) -> None:
        path = words.path("config.json")
        raw = read_json(path)
        if raw.get("model_type") != "t5":
            raise SpecbenchError(f"{path} is of model_type {raw.get('model_type')!r}; LlamaGen reads text with 't5'")
        assert words.folder is not None
        weights = checkpoint.shards(words.folder)
        with described_by(path), torch.device("meta"):
            self.stack: nn.Module = T5Stack(T5Config(**{**raw, "is_encoder_decoder": False, "use_cache": False}))
        checkpoint.fill(self.stack, weights, encoder_name, lambda _: dtype, device)
        self.words = Words(words.path("tokenizer.json"), (END, PAD))
        self.files = [*weights, path, words.path("tokenizer.json")]
        self.device = device

    @torch.inference_mode()
    def states(self, texts: Sequence[str]) -> tuple[Tensor, list[int]]:
        """Encoded captions [B, T, d] and how many of the T each has, its end token included; they stand at the end.

        T is the longest of them, at most :data:`LENGTH`. What stands before a shorter one is zero.
        """
        ids = [[*self.words.ids(clean(text))[: LENGTH - 1], self.words.special(END)] for text in texts]
        lengths, longest, pad = [len(row) for row in ids], max(map(len, ids)), self.words.special(PAD)
        padded = torch.tensor([row + [pad] * (longest - len(row)) for row in ids], device=self.device)
        own = torch.arange(longest, device=self.device) < torch.tensor(lengths, device=self.device)[:, None]
        found = self.stack(input_ids=padded, attention_mask=own.long()).last_hidden_state * own[..., None]
        return torch.stack([row.roll(longest - n, 0) for row, n in zip(found, lengths, strict=True)]), lengths

    def unread(self, text: str) -> list[str]:
        """What the encoder does not get to see of a caption: sentences for people, none where it reads all of it."""
        count, most = len(self.words.ids(clean(text))), LENGTH - 1
        if count > most:
            return [f"LlamaGen reads {most} tokens of a caption; {count - most} were dropped"]
        return ["nothing of the caption is left once LlamaGen has cleaned it"] if text.strip() and not count else []


def encoder_name(name: str) -> str | None:
    """A name of a T5 checkpoint as its encoder's; None for the decoder, and for the second copy of the embedding."""
    if name == "shared.weight":
        return "embed_tokens.weight"
    if name.startswith(("decoder.", "lm_head.")) or name == "encoder.embed_tokens.weight":
        return None
    return name.removeprefix("encoder.")

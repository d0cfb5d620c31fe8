"""Where the tokens of one pass go in the cache: chains and trees, with and without tokens that end a row.

Knows: that code i stands ``i`` slots behind the prompt, or ``i + i // columns`` where every row of ``columns`` codes is
followed by one token more, and which state predicts which code.
Refuses to know: what the tokens are, and the model that reads them.

Offsets count slots behind the prompt; the prompt's last token is offset -1 and counts as code -1.
"""

from __future__ import annotations

from typing import NamedTuple, overload

import torch
from torch import Tensor

from specbench.models.trees import ancestry


class Layout(NamedTuple):
    """S tokens of one pass, for each row of the batch.

    ``slot`` [rows, S] the offset each is written to · ``place`` [rows, S] the offset it has in the sequence (a node of
    a tree stands elsewhere than it is written) · ``column`` [rows, S] the fed token that stands there, or None: each
    in turn · ``end`` [rows, S] whether a row end stands there instead, or None: nowhere · ``read`` [rows, W] after
    which of the S the law behind each fed token is read, or None: after each · ``sees`` [rows, S, S] who sees whom
    within the pass, or None: a chain.
    """

    slot: Tensor
    place: Tensor
    column: Tensor | None = None
    end: Tensor | None = None
    read: Tensor | None = None
    sees: Tensor | None = None


@overload
def place(code: int, columns: int | None) -> int: ...
@overload
def place(code: Tensor, columns: int | None) -> Tensor: ...
def place(code: int | Tensor, columns: int | None) -> int | Tensor:
    """Offset of a code; of -1, the prompt's last token, it is -1."""
    if columns is None:
        return code
    return code + (max(code, 0) if isinstance(code, int) else code.clamp(min=0)) // columns


def longest(width: int, columns: int | None, tree: bool) -> int:
    """The most tokens that a pass over ``width`` fed ones writes."""
    if columns is None:
        return width
    return 2 * width if tree else width + (columns - 1 + width) // columns


def chain(last: Tensor, width: int, columns: int | None) -> Layout:
    """``width`` codes in sequence, the first of them code ``last`` [rows] (-1: the prompt's last token).

    With row ends the pass is as long as the worst start needs, the same for every row of the batch, so that nobody
    has to wait to learn how far a row has come; what stands behind the last code is written over later.
    """
    first = place(last, columns)[:, None]
    slot = first + torch.arange(longest(width, columns, tree=False), device=last.device)
    if columns is None:
        return Layout(slot, slot)
    row, at = slot // (columns + 1), slot % (columns + 1)
    end = (at == columns) & (slot >= 0)
    column = torch.where(slot < 0, 0, (row * columns + at - last[:, None]).clamp(0, width - 1))
    following = last[:, None] + 1 + torch.arange(width, device=last.device)
    return Layout(slot, slot, column, end, place(following, columns) - 1 - first)


def tree(last: Tensor, parents: Tensor, columns: int | None) -> Layout:
    """The nodes of a tree, ``parents`` [rows, W], each written to a slot of its own; the root is code ``last`` [rows].

    With row ends every node has a companion, the row end behind it. It is seen by the node's descendants, and the law
    behind the node is read from it, where the node is the last of its row; elsewhere nobody sees it.
    """
    sees, depth = ancestry(parents)
    width = parents.shape[1]
    code = last[:, None] + depth
    first, own = place(last, columns)[:, None], torch.arange(width, device=last.device)
    if columns is None:
        return Layout(first + own, code, sees=sees)
    closing = (code % columns == columns - 1) & (code >= 0)
    where = place(code, columns)
    strict = sees & ~torch.eye(width, dtype=torch.bool, device=last.device)
    behind = strict & closing[:, None]
    itself = torch.eye(width, dtype=torch.bool, device=last.device).expand_as(sees)
    return Layout(
        slot=first + torch.arange(2 * width, device=last.device),
        place=torch.cat([where, where + 1], 1),
        column=own.repeat(2).expand(len(last), -1),
        end=(torch.arange(2 * width, device=last.device) >= width).expand(len(last), -1),
        read=torch.where(closing, own + width, own),
        sees=torch.cat([torch.cat([sees, behind], 2), torch.cat([sees, behind | itself], 2)], 1),
    )


def kept(last: Tensor, path: Tensor, width: int, columns: int | None) -> tuple[Tensor, Tensor]:
    """From which offsets [rows, D] to which the cache moves when ``path`` [rows, D] of a tree's columns is kept.

    The tree had ``width`` nodes behind code ``last`` [rows]. Columns that are not on the path stay as they are.
    """
    first = place(last, columns)[:, None]
    code = last[:, None] + torch.arange(path.shape[1], device=last.device)
    source, to = first + path, place(code, columns)
    if columns is None:
        return source, to
    closing = (code % columns == columns - 1) & (code >= 0)
    # A node that closes no row is moved twice to the same slot instead of its companion: no shape depends on data.
    return (
        torch.cat([source, torch.where(closing, source + width, source)], 1),
        torch.cat([to, torch.where(closing, to + 1, to)], 1),
    )

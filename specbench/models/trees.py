"""What the parents of a tree pass say about its attention: who sees whom, and how deep each node stands.

Knows: parent columns.
Refuses to know: caches, models, and what the tree is for.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ancestry(parents: Tensor) -> tuple[Tensor, Tensor]:
    """Of nodes with ``parents`` [B, W] int64 (-1 for the root, else a column before the node's own):

    ``sees`` [B, W, W] bool, entry (j, i) whether node i is node j or stands between it and the root, the root
    included; ``depth`` [B, W] int64, 0 for the root. Nodes are followed in doubling steps, log₂ W matrix products.

    >>> ancestry(torch.tensor([[-1, 0, 0, 2]]))[1].tolist()
    [[0, 1, 1, 2]]
    """
    width = parents.shape[1]
    column = torch.arange(width, device=parents.device)
    sees = ((parents[..., None] == column) | (column[:, None] == column)).float()
    for _ in range((width - 1).bit_length()):
        sees = (sees @ sees).clamp_(max=1)
    return sees > 0, sees.sum(-1).long() - 1

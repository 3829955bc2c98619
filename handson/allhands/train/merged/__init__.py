"""Gradients that leave in merged groups, while PyTorch's backward pass still runs.

`hooks.MergedAllReduce` sends the groups of a `Plan`; `exchange` is the way out, real or emulated;
`ddp` gives the same plan to PyTorch's own DDP; `tuner` fits the link again from what it sees.
"""

"""Features of grey pictures from a small convolutional network that was never trained.

Its weights are drawn once from a seeded generator whose numbers are the same everywhere. What such random
features are good for is a baseline, and trying out what is done with features; they are no embeddings of
a trained model.
"""

import numpy as np


class ConvFeatures:
    """5x5 filters, ReLU, means over 4x4 pixels, and a random projection: `filters` filters, `width`
    features."""

    def __init__(self, filters, width, seed):
        # The stream of RandomState never changes, that of default_rng may.
        draw = np.random.RandomState(seed).standard_normal
        self.filters = (draw((25, filters)) / 5).astype("f4")
        self.projection = (draw((36 * filters, width)) / np.sqrt(36 * filters)).astype("f4")

    def __call__(self, batch):
        """One row per 28x28 picture of the column `image`."""
        pixels = batch["image"].flatten().flatten().to_numpy().reshape(-1, 28, 28)
        patches = np.lib.stride_tricks.sliding_window_view(pixels.astype("f4") / 255, (5, 5), (1, 2))
        made = np.maximum(patches.reshape(-1, 25) @ self.filters, 0)
        pooled = made.reshape(len(pixels), 6, 4, 6, 4, -1).mean((2, 4))
        return {"features": pooled.reshape(len(pixels), -1) @ self.projection}

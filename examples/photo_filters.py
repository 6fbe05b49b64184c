"""Filters on a photograph: grey, Gaussian blur, edges, edge-preserving smoothing, sharpening.

The photograph is the astronaut portrait (NASA, public domain) that the scikit-image wheel ships;
only its file is used: `pip install --no-deps scikit-image` is enough.
"""

import importlib.util
import pathlib
import sys

import numpy as np
from PIL import Image

import _common
import quadrants as qd

args = _common.options(__doc__, repeats=10)
qd.init(arch=qd.cpu)

Picture = qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), ndim=2)
Plane = qd.types.ndarray(dtype=qd.f32, ndim=2)
TAPS = 6  # a blur reaches this many pixels to each side


@qd.func
def inside(i: int, n: int):
    return qd.math.clamp(i, 0, n - 1)


@qd.kernel
def grey(src: Picture, out: Plane):
    for i, j in src:
        out[i, j] = src[i, j].dot(qd.Vector([0.2126, 0.7152, 0.0722]))


@qd.kernel
def blur(src: Picture, tmp: Picture, out: Picture, sigma: float):
    """Separable: along rows into `tmp`, then along columns."""
    w = qd.Vector([qd.exp(-0.5 * (k / sigma) ** 2) for k in range(TAPS + 1)])
    w /= 2.0 * w.sum() - w[0]
    for i, j in src:
        total = w[0] * src[i, j]
        for k in qd.static(range(1, TAPS + 1)):
            left, right = inside(j - k, src.shape[1]), inside(j + k, src.shape[1])
            total += w[k] * (src[i, left] + src[i, right])
        tmp[i, j] = total
    for i, j in src:
        total = w[0] * tmp[i, j]
        for k in qd.static(range(1, TAPS + 1)):
            above, below = inside(i - k, src.shape[0]), inside(i + k, src.shape[0])
            total += w[k] * (tmp[above, j] + tmp[below, j])
        out[i, j] = total


@qd.kernel
def sobel(src: Plane, out: Plane):
    for i, j in qd.ndrange((1, src.shape[0] - 1), (1, src.shape[1] - 1)):
        gx, gy = 0.0, 0.0
        for a in qd.static((-1, 0, 1)):
            weight = qd.static(2 - abs(a))
            gx += weight * (src[i + a, j + 1] - src[i + a, j - 1])
            gy += weight * (src[i + 1, j + a] - src[i - 1, j + a])
        out[i, j] = qd.min(qd.sqrt(gx * gx + gy * gy), 1.0)


@qd.kernel
def bilateral(src: Picture, out: Picture, sigma: float, contrast: float):
    """Average of nearby pixels of a similar colour: flat areas smooth out, edges stay."""
    for i, j in src:
        here = src[i, j]
        total, weights = qd.Vector([0.0, 0.0, 0.0]), 0.0
        for a, b in qd.ndrange((-TAPS, TAPS + 1), (-TAPS, TAPS + 1)):
            there = src[inside(i + a, src.shape[0]), inside(j + b, src.shape[1])]
            near = (a * a + b * b) / (2.0 * sigma * sigma)
            w = qd.exp(-near - (there - here).norm_sqr() / (2.0 * contrast * contrast))
            total += w * there
            weights += w
        out[i, j] = total / weights


@qd.kernel
def sharpen(src: Picture, soft: Picture, out: Picture, amount: float):
    for i, j in src:
        out[i, j] = qd.math.clamp(src[i, j] + amount * (src[i, j] - soft[i, j]), 0.0, 1.0)


package = importlib.util.find_spec("skimage")
if package is None:
    sys.exit("the photograph is missing: pip install --no-deps scikit-image")
file = pathlib.Path(package.submodule_search_locations[0], "data", "astronaut.png")
photo = np.ascontiguousarray(Image.open(file).convert("RGB"), np.float32) / 255
grey_out, sobel_out = (np.zeros(photo.shape[:2], np.float32) for _ in range(2))
blur_out, bilateral_out, sharpen_out, scratch = (np.zeros_like(photo) for _ in range(4))


def all_filters():
    grey(photo, grey_out)
    blur(photo, scratch, blur_out, 2.5)
    sobel(grey_out, sobel_out)
    bilateral(photo, bilateral_out, 3.0, 0.12)
    sharpen(photo, blur_out, sharpen_out, 1.2)
    qd.sync()


times = _common.clocked(all_filters, args.repeats)
results = [photo, grey_out, blur_out, sobel_out, bilateral_out, sharpen_out]
tiles = [r if r.ndim == 3 else np.stack([r] * 3, 2) for r in results]
sheet = np.concatenate([np.concatenate(tiles[k : k + 3], 1) for k in (0, 3)], 0)
pixels = (255 * sheet.clip(0, 1)).astype(np.uint8)
_common.finish(args, times, *_common.save(args, "photo_filters", [pixels]))

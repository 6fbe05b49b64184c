"""Image filters: histogram equalisation with atomics, bilateral, Sobel, integral image, on u8."""

import numpy as np

import quadrants as qd

W, H = 80, 60
Img = qd.types.ndarray(dtype=qd.u8, ndim=2)


@qd.kernel
def paint(img: Img):
    for i, j in img:
        v = 90 + 60 * qd.sin(i * 0.2) * qd.cos(j * 0.15) + (i * 7 + j * 13) % 17
        if (i - 30) ** 2 + (j - 25) ** 2 < 150:
            v += 40
        img[i, j] = qd.cast(qd.math.clamp(v, 0, 255), qd.u8)


@qd.kernel
def histogram(img: Img, h: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    for i, j in img:
        h[img[i, j]] += 1


@qd.kernel
def equalise(img: Img, h: qd.types.ndarray(dtype=qd.i32, ndim=1), out: Img):
    qd.loop_config(serialize=True)
    for i in range(1, 256):
        h[i] += h[i - 1]
    for i, j in img:
        out[i, j] = qd.cast(h[img[i, j]] * 255 // h[255], qd.u8)


@qd.kernel
def bilateral(
    img: Img, out: qd.types.ndarray(dtype=qd.f32, ndim=2), radius: qd.template(), s: qd.f32
):
    for i, j in img:
        total, weight = 0.0, 0.0
        for di, dj in qd.ndrange((-radius, radius + 1), (-radius, radius + 1)):
            k = qd.max(0, qd.min(H - 1, i + di))
            l = qd.max(0, qd.min(W - 1, j + dj))
            d = float(img[i, j]) - float(img[k, l])
            w = qd.exp(-(di * di + dj * dj) / 8.0 - d * d / (2 * s * s))
            total += w * img[k, l]
            weight += w
        out[i, j] = total / weight


@qd.kernel
def sobel(img: qd.types.ndarray(dtype=qd.f32, ndim=2), out: qd.types.ndarray(dtype=qd.f32, ndim=2)):
    for i, j in qd.ndrange((1, H - 1), (1, W - 1)):
        g = qd.Vector([0.0, 0.0])
        for k in qd.static(range(-1, 2)):
            w = 2 - abs(k)
            g += w * qd.Vector(
                [img[i + 1, j + k] - img[i - 1, j + k], img[i + k, j + 1] - img[i + k, j - 1]]
            )
        out[i, j] = g.norm()


@qd.kernel
def integral(img: Img, out: qd.types.ndarray(dtype=qd.u32, ndim=2)):
    for i in range(H):
        s = qd.u32(0)
        for j in range(W):
            s += img[i, j]
            out[i, j] = s
    for j in range(W):
        for i in range(1, H):
            out[i, j] += out[i - 1, j]


def main():
    img, eq = np.zeros((H, W), np.uint8), np.zeros((H, W), np.uint8)
    h = np.zeros(256, np.int32)
    smooth, edges = np.zeros((H, W), np.float32), np.zeros((H, W), np.float32)
    total = np.zeros((H, W), np.uint32)
    paint(img)
    histogram(img, h)
    equalise(img, h, eq)
    bilateral(img, smooth, 2, 20.0)
    sobel(smooth, edges)
    integral(img, total)
    assert np.array_equal(total, img.astype(np.uint32).cumsum(0).cumsum(1).astype(np.uint32))
    return {"img_mean": img.mean(), "h": h[::8], "eq_mean": eq.mean(axis=0),
            "smooth": smooth[::3, ::4], "edges": edges[::3, ::4]}  # fmt: skip

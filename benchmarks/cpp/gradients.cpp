// The programs of cases/gradients.py and their adjoints, as a C++ programmer derives them by hand.
//
// Like the other contenders, adjoints read the seed (`g`, the output's gradient) and add to the
// inputs' gradients (`d...`). What several threads have a part in is gathered, or summed by each of
// them apart: no atomics. Built as kernels.cpp is.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

extern "C" {

// --- elementwise: y = sin(x) x + x x -------------------------------------------------------------

void elementwise(long n, const float* __restrict x, float* __restrict y) {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; ++i) y[i] = std::sin(x[i]) * x[i] + x[i] * x[i];
}

// Cosines first, in a buffer: sine and cosine of one number in one loop become a call of sincosf,
// which g++ does not vectorise.
void elementwise_reverse(long n, const float* __restrict x, const float* __restrict g,
                         float* __restrict dx) {
    constexpr long kBlock = 1024;
#pragma omp parallel for schedule(static)
    for (long first = 0; first < n; first += kBlock) {
        const long size = std::min(kBlock, n - first);
        const float *here = x + first, *seed = g + first;
        float *out = dx + first, cosine[kBlock];
#pragma omp simd
        for (long i = 0; i < size; ++i) cosine[i] = std::cos(here[i]);
#pragma omp simd
        for (long i = 0; i < size; ++i)
            out[i] += seed[i] * (cosine[i] * here[i] + std::sin(here[i]) + 2 * here[i]);
    }
}

// --- n-body: all pairs, softened -----------------------------------------------------------------

// n vectors of three as three rows.
static std::vector<float> rows_of(long n, const float* p) {
    std::vector<float> rows(3 * n);
    for (long i = 0; i < n; ++i)
        for (int k = 0; k < 3; ++k) rows[k * n + i] = p[3 * i + k];
    return rows;
}

void n_body(long n, const float* __restrict p, float* __restrict a) {
    const std::vector<float> rows = rows_of(n, p);
    const float *px = rows.data(), *py = px + n, *pz = py + n;
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; ++i) {
        float x = 0, y = 0, z = 0;
#pragma omp simd reduction(+ : x, y, z)
        for (long j = 0; j < n; ++j) {
            const float dx = px[j] - px[i], dy = py[j] - py[i], dz = pz[j] - pz[i];
            const float inv = 1 / std::sqrt(dx * dx + dy * dy + dz * dz + 0.01f);
            const float pull = inv * inv * inv;
            x += dx * pull, y += dy * pull, z += dz * pull;
        }
        a[3 * i] = x, a[3 * i + 1] = y, a[3 * i + 2] = z;
    }
}

// A pair has a part in a[i] with d = p[j] - p[i] and in a[j] with -d. With h = g[j] - g[i], p[i]
// gets h / r^3 - 3 (h . d) d / r^5 for both, and p[j] the opposite: each pair is done once.
void n_body_reverse(long n, const float* __restrict p, const float* __restrict g,
                    float* __restrict dp) {
    const std::vector<float> rows = rows_of(n, p), seeds = rows_of(n, g);
    const float *px = rows.data(), *py = px + n, *pz = py + n;
    const float *gx = seeds.data(), *gy = gx + n, *gz = gy + n;
#pragma omp parallel
    {
        std::vector<float> sums(3 * n);  // this thread's
        float *sx = sums.data(), *sy = sx + n, *sz = sy + n;
#pragma omp for schedule(static, 16)  // later rows are shorter
        for (long i = 0; i < n; ++i) {
            float x = 0, y = 0, z = 0;
#pragma omp simd reduction(+ : x, y, z)
            for (long j = i + 1; j < n; ++j) {
                const float dx = px[j] - px[i], dy = py[j] - py[i], dz = pz[j] - pz[i];
                const float hx = gx[j] - gx[i], hy = gy[j] - gy[i], hz = gz[j] - gz[i];
                const float inv = 1 / std::sqrt(dx * dx + dy * dy + dz * dz + 0.01f);
                const float square = inv * inv, cube = square * inv;
                const float along = 3 * square * (hx * dx + hy * dy + hz * dz);
                const float ex = cube * (hx - along * dx), ey = cube * (hy - along * dy);
                const float ez = cube * (hz - along * dz);
                x += ex, y += ey, z += ez;
                sx[j] -= ex, sy[j] -= ey, sz[j] -= ez;
            }
            sx[i] += x, sy[i] += y, sz[i] += z;
        }
#pragma omp critical
        for (long i = 0; i < n; ++i)
            for (int k = 0; k < 3; ++k) dp[3 * i + k] += sums[k * n + i];
    }
}

// --- stencil: v = (sum of the four neighbours of u) u / 4, inside --------------------------------

void stencil(long n, const float* __restrict u, float* __restrict v) {
#pragma omp parallel for schedule(static)
    for (long i = 1; i < n - 1; ++i) {
        const float* row = u + i * n;
        float* out = v + i * n;
#pragma omp simd
        for (long j = 1; j < n - 1; ++j)
            out[j] = 0.25f * (row[j - n] + row[j + n] + row[j - 1] + row[j + 1]) * row[j];
    }
}

// Cells at the rim have no value, so their seed does not count.
static void stencil_reverse_at(long n, long i, long j, const float* u, const float* g, float* du) {
    const long at[4][2] = {{i - 1, j}, {i + 1, j}, {i, j - 1}, {i, j + 1}};
    const auto inside = [n](long i, long j) { return i > 0 && i < n - 1 && j > 0 && j < n - 1; };
    float sum = 0;
    for (const auto& [k, l] : at) {
        if (inside(k, l)) sum += g[k * n + l] * u[k * n + l];
        if (inside(i, j)) sum += g[i * n + j] * u[k * n + l];
    }
    du[i * n + j] += 0.25f * sum;
}

void stencil_reverse(long n, const float* __restrict u, const float* __restrict g,
                     float* __restrict du) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; ++i) {
        if (i < 2 || i > n - 3) {
            for (long j = 0; j < n; ++j) stencil_reverse_at(n, i, j, u, g, du);
            continue;
        }
        for (long j : {0L, 1L, n - 2, n - 1}) stencil_reverse_at(n, i, j, u, g, du);
        const float *row = u + i * n, *seed = g + i * n;
        float* out = du + i * n;
#pragma omp simd
        for (long j = 2; j < n - 2; ++j) {
            const float around = row[j - n] + row[j + n] + row[j - 1] + row[j + 1];
            out[j] +=
                0.25f * (seed[j] * around + seed[j - n] * row[j - n] + seed[j + n] * row[j + n] +
                         seed[j - 1] * row[j - 1] + seed[j + 1] * row[j + 1]);
        }
    }
}

// --- ragged: as many times as the element says, s = sin(s) + 0.1 ---------------------------------

namespace {

constexpr int kLanes = 16;
using Row = std::array<float, kLanes>;

// Elements side by side in a vector; who has done all its trips waits for the others.
struct Lanes {
    std::array<int, kLanes> trips{};
    Row state{};
    int most = 0, size;

    Lanes(long n, long first, const int* all_trips, const float* x)
        : size(int(std::min<long>(kLanes, n - first))) {
        std::copy_n(all_trips + first, size, trips.begin());
        std::copy_n(x + first, size, state.begin());
        for (int t : trips) most = std::max(most, t);
    }
    void step(int k) {
#pragma omp simd
        for (int l = 0; l < kLanes; ++l) {
            const float next = std::sin(state[l]) + 0.1f;
            state[l] = k < trips[l] ? next : state[l];
        }
    }
};

}  // namespace

void ragged(long n, const int* __restrict trips, const float* __restrict x, float* __restrict y) {
#pragma omp parallel for schedule(static)
    for (long first = 0; first < n; first += kLanes) {
        Lanes lanes(n, first, trips, x);
        for (int k = 0; k < lanes.most; ++k) lanes.step(k);
        std::copy_n(lanes.state.begin(), lanes.size, y + first);
    }
}

void ragged_reverse(long n, const int* __restrict trips, const float* __restrict x,
                    const float* __restrict g, float* __restrict dx) {
#pragma omp parallel
    {
        std::vector<Row> stack;  // the states of a thread's elements
#pragma omp for schedule(static)
        for (long first = 0; first < n; first += kLanes) {
            Lanes lanes(n, first, trips, x);
            if (stack.size() < size_t(lanes.most)) stack.resize(lanes.most);
            for (int k = 0; k < lanes.most; ++k) {
                stack[k] = lanes.state;
                lanes.step(k);
            }
            Row d{};
            std::copy_n(g + first, lanes.size, d.begin());
            for (int k = lanes.most - 1; k >= 0; --k) {
#pragma omp simd
                for (int l = 0; l < kLanes; ++l) {
                    const float before = d[l] * std::cos(stack[k][l]);
                    d[l] = k < lanes.trips[l] ? before : d[l];
                }
            }
            for (int l = 0; l < lanes.size; ++l) dx[first + l] += d[l];
        }
    }
}

// --- p2g: particles of an elastic body hand momentum to a grid -----------------------------------

}  // extern "C"

namespace {

constexpr int kCells = 64;
constexpr float kStep = 1e-4f, kWidth = 1.0f / kCells, kMass = 1e-4f;
constexpr float kPush = -kStep * 4 * kCells * kCells * 1e-4f;

// Matrices are {xx, xy, yx, yy}.
struct Particle {
    int node;         // the first of nine
    float at[2];      // place relative to it, in cells
    float w[2][3];    // weights per axis
    float turn[4];    // I + step * affine
    float F[4], J;    // deformation and its determinant
    float spread[4];  // momentum per distance

    Particle(const float* place, const float* affine, const float* shape) {
        int base[2];
        for (int k = 0; k < 2; ++k) {
            base[k] = int(place[k] * kCells - 0.5f);
            const float x = at[k] = place[k] * kCells - float(base[k]);
            w[k][0] = 0.5f * (1.5f - x) * (1.5f - x);
            w[k][1] = 0.75f - (x - 1) * (x - 1);
            w[k][2] = 0.5f * (x - 0.5f) * (x - 0.5f);
        }
        node = base[0] * kCells + base[1];
        for (int k = 0; k < 4; ++k) turn[k] = kStep * affine[k] + float(k == 0 || k == 3);
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j)
                F[2 * i + j] = turn[2 * i] * shape[j] + turn[2 * i + 1] * shape[2 + j];
        J = F[0] * F[3] - F[1] * F[2];
        const float off = 10 * (F[0] * F[2] + F[1] * F[3]), pressure = 10 * J * (J - 1);
        const float push[4] = {10 * (F[0] * F[0] + F[1] * F[1]) + pressure, off, off,
                               10 * (F[2] * F[2] + F[3] * F[3]) + pressure};
        for (int k = 0; k < 4; ++k) spread[k] = kPush * push[k] + kMass * affine[k];
    }
};

}  // namespace

extern "C" {

void p2g(long n, const float* __restrict place, const float* __restrict speed,
         const float* __restrict affine, const float* __restrict shape, float* momentum) {
#pragma omp parallel for schedule(static) reduction(+ : momentum[ : 2 * kCells * kCells])
    for (long p = 0; p < n; ++p) {
        const Particle q(place + 2 * p, affine + 4 * p, shape + 4 * p);
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j) {
                float* to = momentum + 2 * (q.node + i * kCells + j);
                const float x = (float(i) - q.at[0]) * kWidth, y = (float(j) - q.at[1]) * kWidth;
                const float weight = q.w[0][i] * q.w[1][j];
                const float mx = kMass * speed[2 * p] + q.spread[0] * x + q.spread[1] * y;
                const float my = kMass * speed[2 * p + 1] + q.spread[2] * x + q.spread[3] * y;
                to[0] += weight * mx;
                to[1] += weight * my;
            }
    }
}

void p2g_reverse(long n, const float* __restrict place, const float* __restrict speed,
                 const float* __restrict affine, const float* __restrict shape,
                 const float* __restrict g, float* __restrict dplace, float* __restrict dspeed,
                 float* __restrict daffine, float* __restrict dshape) {
#pragma omp parallel for schedule(static)
    for (long p = 0; p < n; ++p) {
        const Particle q(place + 2 * p, affine + 4 * p, shape + 4 * p);
        const float *v = speed + 2 * p, *S = shape + 4 * p;
        // Over the nodes: weight * seed, its products with the arm, and the weights' gradients.
        float gx = 0, gy = 0, d[4] = {}, dw[2][3] = {};
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j) {
                const float* seed = g + 2 * (q.node + i * kCells + j);
                const float x = (float(i) - q.at[0]) * kWidth, y = (float(j) - q.at[1]) * kWidth;
                const float weight = q.w[0][i] * q.w[1][j];
                const float mx = kMass * v[0] + q.spread[0] * x + q.spread[1] * y;
                const float my = kMass * v[1] + q.spread[2] * x + q.spread[3] * y;
                const float dweight = seed[0] * mx + seed[1] * my;
                dw[0][i] += dweight * q.w[1][j], dw[1][j] += dweight * q.w[0][i];
                const float sx = weight * seed[0], sy = weight * seed[1];
                gx += sx, gy += sy;
                d[0] += sx * x, d[1] += sx * y, d[2] += sy * x, d[3] += sy * y;
            }
        dspeed[2 * p] += kMass * gx, dspeed[2 * p + 1] += kMass * gy;
        for (int k = 0; k < 2; ++k) {
            const float x = q.at[k];
            const float arm = -kWidth * (q.spread[k] * gx + q.spread[2 + k] * gy);
            const float weights =
                dw[k][0] * (x - 1.5f) - dw[k][1] * 2 * (x - 1) + dw[k][2] * (x - 0.5f);
            dplace[2 * p + k] += kCells * (arm + weights);
        }
        // push = 10 F F' + 10 J (J - 1) I, F = turn S
        const float *F = q.F, *T = q.turn, off = 10 * kPush * (d[1] + d[2]);
        const float xx = 20 * kPush * d[0], yy = 20 * kPush * d[3];
        const float dJ = 10 * (2 * q.J - 1) * kPush * (d[0] + d[3]);
        const float dF[4] = {xx * F[0] + off * F[2] + dJ * F[3], xx * F[1] + off * F[3] - dJ * F[2],
                             off * F[0] + yy * F[2] - dJ * F[1],
                             off * F[1] + yy * F[3] + dJ * F[0]};
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) {
                const float turned = dF[2 * i] * S[2 * j] + dF[2 * i + 1] * S[2 * j + 1];
                daffine[4 * p + 2 * i + j] += kMass * d[2 * i + j] + kStep * turned;
                dshape[4 * p + 2 * i + j] += T[i] * dF[j] + T[2 + i] * dF[2 + j];
            }
    }
}

}  // extern "C"

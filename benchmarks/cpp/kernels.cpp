// The hand-written opponents: what a C++ programmer writes with OpenMP in a few minutes.
//
// Built with -O3 -march=native -ffast-math -fopenmp, called through ctypes on the NumPy arrays that
// the other contenders get too, so layouts are equal.

#include <cmath>

extern "C" {

void saxpy(long n, float a, const float* __restrict x, float* __restrict y) {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}

float sum(long n, const float* x) {
    float total = 0;
#pragma omp parallel for simd reduction(+ : total) schedule(static)
    for (long i = 0; i < n; ++i) total += x[i];
    return total;
}

void jacobi(long n, const float* __restrict a, float* __restrict b) {
#pragma omp parallel for schedule(static)
    for (long i = 1; i < n - 1; ++i) {
        const float* row = a + i * n;
        float* out = b + i * n;
#pragma omp simd
        for (long j = 1; j < n - 1; ++j) {
            out[j] = 0.2f * (row[j] + row[j - 1] + row[j + 1] + row[j - n] + row[j + n]);
        }
    }
}

// Positions and accelerations are n x 3, as in the other contenders.
void nbody(long n, const float* __restrict p, float* __restrict acc) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; ++i) {
        const float x = p[3 * i], y = p[3 * i + 1], z = p[3 * i + 2];
        float ax = 0, ay = 0, az = 0;
#pragma omp simd reduction(+ : ax, ay, az)
        for (long j = 0; j < n; ++j) {
            const float dx = p[3 * j] - x, dy = p[3 * j + 1] - y, dz = p[3 * j + 2] - z;
            const float r2 = dx * dx + dy * dy + dz * dz + 1e-3f;
            const float inv = 1.0f / std::sqrt(r2);
            const float pull = inv * inv * inv;
            ax += dx * pull;
            ay += dy * pull;
            az += dz * pull;
        }
        acc[3 * i] = ax;
        acc[3 * i + 1] = ay;
        acc[3 * i + 2] = az;
    }
}

// A time step of programs.mpm, with its constants: clear, scatter, forces, gather. Grid nodes are hit
// by particles of several threads, so what is added there is atomic.
void mpm(long n, float* __restrict pos, float* __restrict vel, float* __restrict affine,
         float* __restrict dilation, float* __restrict momentum, float* __restrict mass) {
    constexpr int G = 128;
    constexpr float h = 1.0f / G, dt = 2e-4f, stiffness = 60, viscosity = 0.02f, gravity = 9.8f;
    const float volume = 0.3f / float(n);
    struct Stencil {
        int cell[2];
        float d[2], w[3][2];
        explicit Stencil(const float* p) {
            for (int k = 0; k < 2; ++k) {
                const float at = p[k] / h;
                cell[k] = int(std::floor(at + 0.5f));
                d[k] = at - float(cell[k]);
                w[0][k] = 0.5f * (0.5f - d[k]) * (0.5f - d[k]);
                w[1][k] = 0.75f - d[k] * d[k];
                w[2][k] = 0.5f * (0.5f + d[k]) * (0.5f + d[k]);
            }
        }
    };
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int i = 0; i < G * G; ++i) mass[i] = momentum[2 * i] = momentum[2 * i + 1] = 0;
#pragma omp for schedule(static)
        for (long p = 0; p < n; ++p) {
            const Stencil s(pos + 2 * p);
            const float* rate = affine + 4 * p;
            const float pressure = stiffness * (1 - dilation[p]);
            const float off = viscosity * (rate[1] + rate[2]);
            const float stress[4] = {2 * viscosity * rate[0] - pressure, off, off,
                                     2 * viscosity * rate[3] - pressure};
            float spread[4];
            for (int k = 0; k < 4; ++k)
                spread[k] = volume * rate[k] - 4 * dt * volume * dilation[p] / (h * h) * stress[k];
            for (int a = 0; a < 3; ++a)
                for (int b = 0; b < 3; ++b) {
                    const int node = (s.cell[0] + a - 1) * G + s.cell[1] + b - 1;
                    const float x = (float(a - 1) - s.d[0]) * h, y = (float(b - 1) - s.d[1]) * h;
                    const float weight = s.w[a][0] * s.w[b][1];
                    const float mx = volume * vel[2 * p] + spread[0] * x + spread[1] * y;
                    const float my = volume * vel[2 * p + 1] + spread[2] * x + spread[3] * y;
#pragma omp atomic
                    momentum[2 * node] += weight * mx;
#pragma omp atomic
                    momentum[2 * node + 1] += weight * my;
#pragma omp atomic
                    mass[node] += weight * volume;
                }
        }
#pragma omp for schedule(static)
        for (int i = 0; i < G; ++i)
            for (int j = 0; j < G; ++j) {
                const float m = mass[i * G + j];
                if (m <= 0) continue;
                float vx = momentum[2 * (i * G + j)] / m;
                float vy = momentum[2 * (i * G + j) + 1] / m - dt * gravity;
                if ((i < 3 && vx < 0) || (i > G - 4 && vx > 0)) vx = 0;
                if ((j < 3 && vy < 0) || (j > G - 4 && vy > 0)) vy = 0;
                momentum[2 * (i * G + j)] = vx;
                momentum[2 * (i * G + j) + 1] = vy;
            }
#pragma omp for schedule(static)
        for (long p = 0; p < n; ++p) {
            const Stencil s(pos + 2 * p);
            float mx = 0, my = 0, rate[4] = {};
            for (int a = 0; a < 3; ++a)
                for (int b = 0; b < 3; ++b) {
                    const float* v = momentum + 2 * ((s.cell[0] + a - 1) * G + s.cell[1] + b - 1);
                    const float x = (float(a - 1) - s.d[0]) * h, y = (float(b - 1) - s.d[1]) * h;
                    const float weight = s.w[a][0] * s.w[b][1], q = 4 * weight / (h * h);
                    mx += weight * v[0];
                    my += weight * v[1];
                    rate[0] += q * v[0] * x, rate[1] += q * v[0] * y;
                    rate[2] += q * v[1] * x, rate[3] += q * v[1] * y;
                }
            for (int k = 0; k < 4; ++k) affine[4 * p + k] = rate[k];
            vel[2 * p] = mx, vel[2 * p + 1] = my;
            pos[2 * p] += dt * mx, pos[2 * p + 1] += dt * my;
            dilation[p] = std::fmax(0.6f, dilation[p] * (1 + dt * (rate[0] + rate[3])));
        }
    }
}

}  // extern "C"

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

}  // extern "C"

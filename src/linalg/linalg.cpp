// Sparse matrices and direct solvers over Eigen, for python/quadrants/linalg, which calls this
// object through ctypes and checks shapes and types before.
//
// Every matrix has column-major storage, which the solvers need. Numbers cross as double, arrays in
// the matrix's own type. What can fail returns false or null; nothing is thrown across the border.

// All that is included is under the MPL 2 or freer.
#define EIGEN_MPL2_ONLY
#include <Eigen/IterativeLinearSolvers>
#include <Eigen/Sparse>
#include <Eigen/SparseCholesky>
#include <Eigen/SparseLU>
#include <algorithm>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace qd::linalg {
namespace {

struct Matrix {
    virtual ~Matrix() = default;
    virtual void set_triplets(int count, const int* rows, const int* columns,
                              const void* values) = 0;
    virtual int64_t nonzeros() const = 0;
    virtual void triplets(int* rows, int* columns, void* values) const = 0;
    virtual double get(int row, int column) const = 0;
    virtual void set(int row, int column, double value) = 0;
    virtual std::unique_ptr<Matrix> combined(const Matrix& other, int how) const = 0;
    virtual std::unique_ptr<Matrix> scaled(double factor) const = 0;
    virtual std::unique_ptr<Matrix> transposed() const = 0;
    virtual void multiply(const void* x, void* y) const = 0;
    virtual std::string text() const = 0;
    virtual bool conjugate_gradients(const void* b, void* x, int most, double tolerance) const = 0;
};

struct Solver {
    virtual ~Solver() = default;
    virtual void analyze(Matrix& m) = 0;
    virtual void factorize(Matrix& m) = 0;
    virtual bool solve(const void* b, void* x, int n) = 0;
    virtual bool succeeded() const = 0;
};

enum How { plus, minus, hadamard, product };

template <class T>
struct MatrixOf : Matrix {
    using Sparse = Eigen::SparseMatrix<T>;
    using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
    using Map = Eigen::Map<Vector>;
    using ConstMap = Eigen::Map<const Vector>;
    Sparse m;

    explicit MatrixOf(Sparse given) : m(std::move(given)) { m.makeCompressed(); }

    static std::unique_ptr<Matrix> make(Sparse given) {
        return std::make_unique<MatrixOf>(std::move(given));
    }
    void set_triplets(int count, const int* rows, const int* columns, const void* values) override {
        const T* v = static_cast<const T*>(values);
        std::vector<Eigen::Triplet<T>> list;
        for (int k = 0; k < count; ++k) list.emplace_back(rows[k], columns[k], v[k]);
        m.setFromTriplets(list.begin(), list.end());
    }
    int64_t nonzeros() const override { return m.nonZeros(); }
    void triplets(int* rows, int* columns, void* values) const override {
        T* v = static_cast<T*>(values);
        for (int c = 0; c < m.outerSize(); ++c)
            for (typename Sparse::InnerIterator at(m, c); at; ++at) {
                *rows++ = static_cast<int>(at.row());
                *columns++ = static_cast<int>(at.col());
                *v++ = at.value();
            }
    }
    double get(int row, int column) const override {
        return static_cast<double>(m.coeff(row, column));
    }
    void set(int row, int column, double value) override {
        m.coeffRef(row, column) = static_cast<T>(value);
    }
    std::unique_ptr<Matrix> combined(const Matrix& other, int how) const override {
        const Sparse& o = static_cast<const MatrixOf&>(other).m;
        switch (how) {
            case plus:
                return make(m + o);
            case minus:
                return make(m - o);
            case hadamard:
                return make(m.cwiseProduct(o));
            default:
                return make(m * o);
        }
    }
    std::unique_ptr<Matrix> scaled(double factor) const override {
        return make(m * static_cast<T>(factor));
    }
    std::unique_ptr<Matrix> transposed() const override { return make(m.transpose()); }
    void multiply(const void* x, void* y) const override {
        Map(static_cast<T*>(y), m.rows()).noalias() =
            m * ConstMap(static_cast<const T*>(x), m.cols());
    }
    std::string text() const override {
        std::ostringstream out;
        const Eigen::IOFormat format(Eigen::StreamPrecision, 0, ", ", "\n", "[", "]");
        out << Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>(m).format(format);
        return out.str();
    }
    // `x` holds the first guess.
    bool conjugate_gradients(const void* b, void* x, int most, double tolerance) const override {
        Eigen::ConjugateGradient<Sparse, Eigen::Lower | Eigen::Upper> solver;
        solver.setMaxIterations(most);
        solver.setTolerance(static_cast<T>(tolerance));
        solver.compute(m);
        const Vector guess = Map(static_cast<T*>(x), m.rows());
        Map(static_cast<T*>(x), m.rows()) =
            solver.solveWithGuess(ConstMap(static_cast<const T*>(b), m.rows()), guess);
        return solver.info() == Eigen::Success;
    }
};

template <class T, class Method>
struct SolverOf : Solver {
    using M = MatrixOf<T>;
    Method method;
    Eigen::Index size = -1;         // of what is factorised; -1: nothing is
    std::vector<int> outer, inner;  // the pattern that was analysed

    static const typename M::Sparse& compressed(Matrix& given) {
        auto& m = static_cast<M&>(given).m;
        m.makeCompressed();
        return m;
    }
    // Eigen's methods neither check that patterns agree nor take matrices of no rows.
    void analyze(Matrix& given) override {
        const typename M::Sparse& m = compressed(given);
        size = -1;
        outer.assign(m.outerIndexPtr(), m.outerIndexPtr() + m.outerSize() + 1);
        inner.assign(m.innerIndexPtr(), m.innerIndexPtr() + m.nonZeros());
        if (m.rows()) method.analyzePattern(m);
    }
    bool is_analyzed(const typename M::Sparse& m) const {
        return std::ranges::equal(outer, std::span(m.outerIndexPtr(), size_t(m.outerSize()) + 1)) &&
               std::ranges::equal(inner, std::span(m.innerIndexPtr(), size_t(m.nonZeros())));
    }
    void factorize(Matrix& given) override {
        const typename M::Sparse& m = compressed(given);
        if (!is_analyzed(m)) analyze(given);
        size = -1;
        if (m.rows()) method.factorize(m);
        size = m.rows();
    }
    bool succeeded() const override {
        return !size || (size > 0 && method.info() == Eigen::Success);
    }
    bool solve(const void* b, void* x, int n) override {
        if (n != size || !succeeded()) return false;
        if (!size) return true;
        const typename M::Vector right = typename M::ConstMap(static_cast<const T*>(b), size);
        typename M::Map(static_cast<T*>(x), size) = method.solve(right);
        return true;
    }
};

template <class T, class Order>
std::unique_ptr<Solver> make_ordered(int kind) {
    using Sparse = Eigen::SparseMatrix<T>;
    switch (kind) {
        case 0:
            return std::make_unique<
                SolverOf<T, Eigen::SimplicialLLT<Sparse, Eigen::Lower, Order>>>();
        case 1:
            return std::make_unique<
                SolverOf<T, Eigen::SimplicialLDLT<Sparse, Eigen::Lower, Order>>>();
        default:
            return std::make_unique<SolverOf<T, Eigen::SparseLU<Sparse, Order>>>();
    }
}

template <class T>
std::unique_ptr<Solver> make_solver(int kind, int ordering) {
    return ordering == 0 ? make_ordered<T, Eigen::AMDOrdering<int>>(kind)
                         : make_ordered<T, Eigen::COLAMDOrdering<int>>(kind);
}

// Null or false if memory is short.
template <class F>
auto contained(F f) -> decltype(f()) {
    try {
        return f();
    } catch (const std::exception&) {
        return {};
    }
}

Matrix& matrix(void* m) { return *static_cast<Matrix*>(m); }
Solver& solver(void* s) { return *static_cast<Solver*>(s); }

}  // namespace
}  // namespace qd::linalg

using namespace qd::linalg;

#define QD_LINALG extern "C" __attribute__((visibility("default")))

QD_LINALG void* qd_linalg_matrix(int is_double, int rows, int columns) {
    return contained([&]() -> Matrix* {
        if (is_double)
            return MatrixOf<double>::make(Eigen::SparseMatrix<double>(rows, columns)).release();
        return MatrixOf<float>::make(Eigen::SparseMatrix<float>(rows, columns)).release();
    });
}
QD_LINALG void qd_linalg_drop_matrix(void* m) { delete static_cast<Matrix*>(m); }
QD_LINALG bool qd_linalg_set_triplets(void* m, int count, const int* rows, const int* columns,
                                      const void* values) {
    return contained([&] { return matrix(m).set_triplets(count, rows, columns, values), true; });
}
QD_LINALG int64_t qd_linalg_nonzeros(void* m) { return matrix(m).nonzeros(); }
QD_LINALG void qd_linalg_triplets(void* m, int* rows, int* columns, void* values) {
    matrix(m).triplets(rows, columns, values);
}
QD_LINALG double qd_linalg_get(void* m, int row, int column) { return matrix(m).get(row, column); }
QD_LINALG bool qd_linalg_set(void* m, int row, int column, double value) {
    return contained([&] { return matrix(m).set(row, column, value), true; });
}
QD_LINALG void* qd_linalg_combined(void* a, void* b, int how) {
    return contained([&] { return matrix(a).combined(matrix(b), how).release(); });
}
QD_LINALG void* qd_linalg_scaled(void* m, double factor) {
    return contained([&] { return matrix(m).scaled(factor).release(); });
}
QD_LINALG void* qd_linalg_transposed(void* m) {
    return contained([&] { return matrix(m).transposed().release(); });
}
QD_LINALG bool qd_linalg_multiply(void* m, const void* x, void* y) {
    return contained([&] { return matrix(m).multiply(x, y), true; });
}
// Bytes of the text; copied if there is room.
QD_LINALG int64_t qd_linalg_text(void* m, char* to, int64_t room) {
    return contained([&]() -> int64_t {
        const std::string text = matrix(m).text();
        if (static_cast<int64_t>(text.size()) <= room) text.copy(to, text.size());
        return static_cast<int64_t>(text.size());
    });
}
QD_LINALG bool qd_linalg_conjugate_gradients(void* m, const void* b, void* x, int most,
                                             double tolerance) {
    return contained([&] { return matrix(m).conjugate_gradients(b, x, most, tolerance); });
}
QD_LINALG void* qd_linalg_solver(int is_double, int kind, int ordering) {
    return contained([&] {
        return (is_double ? make_solver<double>(kind, ordering)
                          : make_solver<float>(kind, ordering))
            .release();
    });
}
QD_LINALG void qd_linalg_drop_solver(void* s) { delete static_cast<Solver*>(s); }
QD_LINALG bool qd_linalg_analyze(void* s, void* m) {
    return contained([&] { return solver(s).analyze(matrix(m)), true; });
}
QD_LINALG bool qd_linalg_factorize(void* s, void* m) {
    return contained([&] { return solver(s).factorize(matrix(m)), true; });
}
QD_LINALG bool qd_linalg_solve(void* s, const void* b, void* x, int n) {
    return contained([&] { return solver(s).solve(b, x, n); });
}
QD_LINALG bool qd_linalg_succeeded(void* s) { return solver(s).succeeded(); }

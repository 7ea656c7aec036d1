/* Stand-in for libcusolver: handles, and how much workspace a factorisation
 * asks for.  The factorisations themselves are generated as "done".
 *
 * NVIDIA documents no workspace sizes.  These are LAPACK's documented optima,
 * with its blocks of 64 columns: estimates, and noted as such. */
#include "core.h"

#include <limits.h>
#include <stdlib.h>

#define CUSOLVER_ALLOC_FAILED 2
#define BLOCK 64

static int create(void **out)
{
    *out = calloc(1, 64);
    return *out ? 0 : CUSOLVER_ALLOC_FAILED;
}

static int destroy(void *object)
{
    free(object);
    return 0;
}

#define OBJECT(name)                                                                                                  \
    VGPU_API int cusolverDnCreate##name(void **out)                                                                   \
    {                                                                                                                 \
        return create(out);                                                                                           \
    }                                                                                                                 \
    VGPU_API int cusolverDnDestroy##name(void *object)                                                                \
    {                                                                                                                 \
        return destroy(object);                                                                                       \
    }

OBJECT() /* a handle */
OBJECT(Params)
OBJECT(GesvdjInfo)
OBJECT(SyevjInfo)

/* ---- elements, by LAPACK's name ------------------------------------------------ */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t blocked(int64_t columns)
{
    return larger(columns, 1) * BLOCK;
}

/* The general and the Jacobi methods alike: bidiagonal form, and a block of reflectors. */
static int64_t gesvd(int64_t m, int64_t n)
{
    return 3 * smaller(m, n) + larger(larger(m, n), blocked(smaller(m, n)));
}

static int64_t syevd(int64_t n, int vectors)
{
    return vectors ? 1 + 6 * n + 2 * n * n : 2 * n + blocked(n);
}

static int64_t geev(int64_t n)
{
    return 4 * n + blocked(n);
}

/* ---- answers ------------------------------------------------------------------------ */

static int elements(int64_t count, int *out)
{
    vgpu_note("estimated", "cuSOLVER workspace");
    *out = (int)smaller(count, INT_MAX);
    return 0;
}

static int bytes(int64_t count, int type, size_t *device, size_t *host)
{
    /* float, double, and from 4 on their complex pairs */
    size_t real = type & 1 ? 8 : 4;

    vgpu_note("estimated", "cuSOLVER workspace");
    *device = (size_t)count * (type & 4 ? 2 * real : real);
    *host = 0;
    return 0;
}

/* ---- one function a precision: S, D, C and Z, which differ in pointers only ------------ */

#define REAL(name, parameters, count)                                                                                 \
    VGPU_API int cusolverDnS##name parameters { return elements(count, out); }                                        \
    VGPU_API int cusolverDnD##name parameters { return elements(count, out); }
#define COMPLEX(name, parameters, count)                                                                              \
    VGPU_API int cusolverDnC##name parameters { return elements(count, out); }                                        \
    VGPU_API int cusolverDnZ##name parameters { return elements(count, out); }
#define EACH(name, parameters, count)                                                                                 \
    REAL(name, parameters, count)                                                                                     \
    COMPLEX(name, parameters, count)

#pragma GCC diagnostic ignored "-Wunused-parameter" /* each interface has all of cuSOLVER's */

EACH(potrf_bufferSize, (void *handle, int part, int n, void *a, int lda, int *out), blocked(n))
EACH(getrf_bufferSize, (void *handle, int m, int n, void *a, int lda, int *out), blocked(n))
EACH(geqrf_bufferSize, (void *handle, int m, int n, void *a, int lda, int *out), blocked(n))
EACH(sytrf_bufferSize, (void *handle, int n, void *a, int lda, int *out), blocked(n))
EACH(gesvd_bufferSize, (void *handle, int m, int n, int *out), gesvd(m, n))

#define FORM_Q (void *handle, int m, int n, int k, const void *a, int lda, const void *tau, int *out)
REAL(orgqr_bufferSize, FORM_Q, blocked(n))
COMPLEX(ungqr_bufferSize, FORM_Q, blocked(n))

#define APPLY_Q                                                                                                       \
    (void *handle, int side, int transposed, int m, int n, int k, const void *a, int lda, const void *tau,            \
     const void *c, int ldc, int *out)
REAL(ormqr_bufferSize, APPLY_Q, blocked(side ? m : n)) /* 1: from the right */
COMPLEX(unmqr_bufferSize, APPLY_Q, blocked(side ? m : n))

#define JACOBI_SVD                                                                                                    \
    (void *handle, int vectors, int economy, int m, int n, const void *a, int lda, const void *s, const void *u,      \
     int ldu, const void *v, int ldv, int *out, void *info)
EACH(gesvdj_bufferSize, JACOBI_SVD, gesvd(m, n))

#define JACOBI_SVD_BATCH                                                                                              \
    (void *handle, int vectors, int m, int n, const void *a, int lda, const void *s, const void *u, int ldu,          \
     const void *v, int ldv, int *out, void *info, int batch)
EACH(gesvdjBatched_bufferSize, JACOBI_SVD_BATCH, batch * gesvd(m, n))

#define TALL_SVD_BATCH                                                                                                \
    (void *handle, int vectors, int rank, int m, int n, const void *a, int lda, long long stride_a, const void *s,    \
     long long stride_s, const void *u, int ldu, long long stride_u, const void *v, int ldv, long long stride_v,      \
     int *out, int batch)
EACH(gesvdaStridedBatched_bufferSize, TALL_SVD_BATCH, batch * gesvd(m, n))

#define EIGEN (void *handle, int vectors, int part, int n, const void *a, int lda, const void *w, int *out)
REAL(syevd_bufferSize, EIGEN, syevd(n, vectors))
COMPLEX(heevd_bufferSize, EIGEN, syevd(n, vectors))

#define JACOBI_EIGEN                                                                                                  \
    (void *handle, int vectors, int part, int n, const void *a, int lda, const void *w, int *out, void *info)
REAL(syevj_bufferSize, JACOBI_EIGEN, syevd(n, vectors))
COMPLEX(heevj_bufferSize, JACOBI_EIGEN, syevd(n, vectors))

#define JACOBI_EIGEN_BATCH                                                                                            \
    (void *handle, int vectors, int part, int n, const void *a, int lda, const void *w, int *out, void *info,         \
     int batch)
REAL(syevjBatched_bufferSize, JACOBI_EIGEN_BATCH, batch * syevd(n, vectors))
COMPLEX(heevjBatched_bufferSize, JACOBI_EIGEN_BATCH, batch * syevd(n, vectors))

/* ---- one function for all precisions ----------------------------------------------------- */

VGPU_API int cusolverDnXpotrf_bufferSize(void *handle, void *params, int part, int64_t n, int type, const void *a,
                                         int64_t lda, int computed_in, size_t *device, size_t *host)
{
    return bytes(blocked(n), type, device, host);
}

VGPU_API int cusolverDnXgeqrf_bufferSize(void *handle, void *params, int64_t m, int64_t n, int type, const void *a,
                                         int64_t lda, int tau_type, const void *tau, int computed_in, size_t *device,
                                         size_t *host)
{
    return bytes(blocked(n), type, device, host);
}

VGPU_API int cusolverDnXsytrs_bufferSize(void *handle, int part, int64_t n, int64_t columns, int type, const void *a,
                                         int64_t lda, const int64_t *pivots, int b_type, void *b, int64_t ldb,
                                         size_t *device, size_t *host)
{
    return bytes(n, type, device, host);
}

VGPU_API int cusolverDnXsyevd_bufferSize(void *handle, void *params, int vectors, int part, int64_t n, int type,
                                         const void *a, int64_t lda, int w_type, const void *w, int computed_in,
                                         size_t *device, size_t *host)
{
    return bytes(syevd(n, vectors), type, device, host);
}

VGPU_API int cusolverDnXsyevBatched_bufferSize(void *handle, void *params, int vectors, int part, int64_t n, int type,
                                               const void *a, int64_t lda, int w_type, const void *w, int computed_in,
                                               size_t *device, size_t *host, int64_t batch)
{
    return bytes(batch * syevd(n, vectors), type, device, host);
}

VGPU_API int cusolverDnXgesvd_bufferSize(void *handle, void *params, signed char left, signed char right, int64_t m,
                                         int64_t n, int type, const void *a, int64_t lda, int s_type, const void *s,
                                         int u_type, const void *u, int64_t ldu, int v_type, const void *v,
                                         int64_t ldv, int computed_in, size_t *device, size_t *host)
{
    return bytes(gesvd(m, n), type, device, host);
}

VGPU_API int cusolverDnXgeev_bufferSize(void *handle, void *params, int left, int right, int64_t n, int type,
                                        const void *a, int64_t lda, int w_type, const void *w, int left_type,
                                        const void *left_vectors, int64_t left_ld, int right_type,
                                        const void *right_vectors, int64_t right_ld, int computed_in, size_t *device,
                                        size_t *host)
{
    return bytes(geev(n), type, device, host);
}
